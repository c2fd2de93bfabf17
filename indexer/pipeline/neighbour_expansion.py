"""Neighbour expansion (`--neighbours`): a document also gets the words of its nearest documents, with less weight than its own words.

    w'(t, d) = max(w(t, d), 1/n * sum over the n documents e nearest to d of cos(d, e) * w(t, e))

This is document expansion by neighbours (Singhal and Pereira 1999; Tao, Wang, Mei and Zhai 2006), with learned weights in place of
language models, and vectors to find the neighbours. The formula takes the larger weight and not the sum, so that the words which tell a
document from its neighbours keep their weight: a sum costs quality where documents differ only in one name.

A build needs all encodings before it can send the first document, so it encodes the source first and stores the encodings on disk; a
build that was killed continues from there. An update searches the index for the neighbours of the documents that it sends.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.indexer.pipeline import encoding_store
from termweave.indexer.preparation.corpus_pass import blocks
from termweave.records import Encoding, TermWeights
from termweave.signals import dialect
from termweave.signals.impacts import WeightedTerms, scale
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.ledger.ledger import Ledger
    from termweave.indexer.pipeline.encoding import Encode
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.records import Document
    from termweave.signals import DocumentLayout

#: The name of the stage in which the source is encoded and nothing is sent yet.
ENCODING = "Encoding"
#: Words of neighbours that would weigh less than this share of the largest weight are left out: that is most words, and little gain.
_LEAST = 0.04
#: How many documents are compared at once, and with how many: so many cosines take 128 MiB, and picking the best three times that.
_ROWS, _COLUMNS = 512, 1 << 16
#: Number of columns of cosines of which only the largest is looked at first.
_GROUP = 16
#: k-NN searches in one request.
_SEARCHES = 64


def joined(own: TermWeights, near: Sequence[tuple[float, TermWeights]], least: float) -> TermWeights:
    """Join the weights of a document with those of its neighbours, by the formula above.

    Args:
        own: Weights of the document. A document without words stays so: the neighbours of its vector mean nothing.
        near: (cosine, weights) of each neighbour; one with a negative cosine adds nothing.
        least: The least weight of an added word; lighter words of neighbours are left out.

    Returns:
        The document's own terms in their order, none of them lighter than before, and then the new ones.

    Example:
        >>> weights = lambda **each: TermWeights(tuple(each), np.array(list(each.values()), np.float32))
        >>> joined(weights(bank=4.0), [(0.5, weights(river=4.0)), (1.0, weights(bank=1.0))], least=0.5).as_dict()
        {'bank': 4.0, 'river': 1.0}
    """
    if not len(own) or not near:
        return own
    added: defaultdict[str, float] = defaultdict(float)
    for cosine, weights in near:
        if cosine > 0:
            for term, weight in zip(weights.terms, weights.weights.tolist(), strict=True):
                added[term] += cosine / len(near) * weight
    merged = dict(zip(own.terms, own.weights.tolist(), strict=True))
    merged |= {term: weight for term, weight in added.items() if weight >= least and weight > merged.get(term, 0.0)}
    return TermWeights(tuple(merged), np.array(list(merged.values()), np.float32))


def from_source(source: Source, encode: Encode, ledger: Ledger, count: int, progress: BuildProgress) -> Encode:
    """Return a function that encodes documents of a source with the words of their neighbours in that source.

    The whole source is encoded first, into files beside the ledger. Files that exist already come from a build that was stopped;
    `ledger.resume` has checked that source, models and settings are the same.

    Args:
        source: The documents, or their passages. If several have the same id, the first counts, as in the corpus pass.
        encode: Encodes documents by their own text, with weights and vectors.
        ledger: The ledger of the generation.
        count: Number of neighbours.
        progress: Called with (stage, done, total).

    Returns:
        The function. It holds all encodings in memory: the vector and about 1.2 KB for each document.

    Raises:
        TermweaveError: A file cannot be written.
    """
    corpus, total = Corpus(), ledger.total
    first_lines: dict[str, int | None] = {}  # document -> the line where its id stands first
    for number, block in enumerate(blocks(source.documents(), total)):
        kept = [document for document in block if first_lines.setdefault(document.source_id, document.line) == document.line]
        if not kept:
            continue
        path = encoding_store.file(ledger, number)
        encodings = encoding_store.read(path, kept)
        if encodings is None:
            progress(ENCODING, len(corpus.rows), total)
            encodings = encode(kept)
            encoding_store.keep(path, kept, encodings)
        corpus.add(kept, encodings)
    progress(ENCODING, len(corpus.rows), total)
    corpus.close()
    return lambda documents: corpus.expanded(documents, count)


def from_index(engine: Engine, index: str, layout: DocumentLayout, encode: Encode, count: int) -> Encode:
    """Return a function that encodes documents with the words of their neighbours in an index.

    The stored words of the neighbours are used, including the words that these got from their own neighbours.

    Args:
        engine: The server.
        index: A generation, refreshed.
        layout: The layout of its documents, with vectors and weights.
        encode: Encodes documents by their own text.
        count: Number of neighbours.
    """
    dense = next(signal for signal in layout.signals if signal.needs == "dense")
    # If two signals store weights, the one with finer steps is read.
    terms = max((signal for signal in layout.signals if isinstance(signal, WeightedTerms)), key=lambda signal: signal.levels)
    stored = dialect.of(engine.capabilities).source(list(terms.properties()))

    def neighbours(parts: Sequence[tuple[Document, Encoding]]) -> list[list[tuple[float, TermWeights]]]:
        clauses, lines = [], []
        for document, encoding in parts:
            others = {"bool": {"must_not": [{"term": {"id": document.source_id}}]}}
            clause = dense.clause(encoding, size=count, where=[others], capabilities=engine.capabilities)
            assert clause is not None  # the encoding is one of a text
            clauses.append(clause)
            body = {"query": clause.query, "size": count, "_source": stored}
            lines += [orjson.dumps(ALL_SHARDS), orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)]
        searches = b"\n".join(lines) + b"\n"

        def search() -> list[list[dict[str, Any]]]:
            answers = engine.request("POST", f"/{index}/_msearch", body=searches)["responses"]
            return [_hits(answer) for answer in answers]

        return [
            [(dense.score(hit["_score"], clause), terms.impacts_of(hit["_source"])) for hit in hits]
            for clause, hits in zip(clauses, engine.repeat(search), strict=True)
        ]

    def expanded(documents: Sequence[Document]) -> list[Encoding]:
        encodings = encode(documents)
        with_words = [place for place, encoding in enumerate(encodings) if encoding.weights and encoding.text.strip()]
        for places in in_parts(with_words, _SEARCHES):
            near = neighbours([(documents[place], encodings[place]) for place in places])
            for place, others in zip(places, near, strict=True):
                encodings[place] = _with(encodings[place], others, _LEAST * terms.w_max)
        return encodings

    return expanded


def _hits(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The hits of one search of an `_msearch`, which has errors of its own in a response with status 200.

    Raises:
        EngineResponseError: The search failed, or only some of the shards answered: these would be the wrong neighbours.
    """
    if "error" in answer:
        causes = answer["error"].get("root_cause") or [answer["error"]]
        raise EngineResponseError(
            answer.get("status", 0), str(causes[0].get("reason", answer["error"])), answer, request="_msearch"
        )
    if answer["_shards"]["failed"] or answer.get("timed_out"):
        reason = "only some of the shards answered a search for neighbours"
        raise EngineResponseError(HTTPStatus.SERVICE_UNAVAILABLE, reason, answer, request="_msearch")
    hits: list[dict[str, Any]] = answer["hits"]["hits"]
    return hits


def _with(encoding: Encoding, near: Sequence[tuple[float, TermWeights]], least: float) -> Encoding:
    """Return an encoding whose weights are joined with those of its neighbours."""
    assert encoding.weights is not None
    return replace(encoding, weights=joined(encoding.weights, near, least))


class Corpus:
    """The encodings of a whole source, in which neighbours are looked up.

    Attributes:
        rows: (id, line) of a document -> its row.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int | None], int] = {}
        self._weights: list[TermWeights] = []
        self._parts: list[NDArray[np.float32]] = []
        self._families: list[int] = []
        self._blanks: list[bool] = []

    def add(self, documents: Sequence[Document], encodings: Sequence[Encoding]) -> None:
        """Add a block. Each term is in memory only once, however many documents contain it."""
        for document, encoding in zip(documents, encodings, strict=True):
            assert encoding.weights is not None
            self.rows[document.id, document.line] = len(self.rows)
            first = (
                document.passage is None or document.passage.number == 1
            )  # the first passage of a document precedes its others
            self._families.append((self._families[-1] if self._families else 0) + first)
            self._blanks.append(document.blank)
            self._weights.append(TermWeights(tuple(map(sys.intern, encoding.weights.terms)), encoding.weights.weights))
        self._parts.append(encoding_store.vectors(encodings))

    def close(self) -> None:
        """Finish adding: join the vectors of all blocks. Each block is dropped when it is copied, so that memory never holds all twice."""
        end = len(self.rows)
        self._vectors = np.empty((end, self._parts[0].shape[1]), np.float32)
        while self._parts:
            part = self._parts.pop()
            self._vectors[end - len(part) : end] = part
            end -= len(part)
        self._family, self._blank = np.array(self._families), np.array(self._blanks)
        self._least = _LEAST * scale([weights.weights for weights in self._weights])
        self._families, self._blanks = [], []

    def expanded(self, documents: Sequence[Document], count: int) -> list[Encoding]:
        """Return the encodings of some documents of the source, with the words of their neighbours."""
        return [each for part in in_parts(documents, _ROWS) for each in self._expanded(part, count)]

    def _expanded(self, documents: Sequence[Document], count: int) -> list[Encoding]:
        rows = np.array([self.rows[document.id, document.line] for document in documents])
        cosines, nearest = self._nearest(rows, count)
        return [
            _with(
                Encoding(document.content, self._weights[row], self._vectors[row]),
                [(cosine, self._weights[other]) for cosine, other in zip(near, others, strict=True) if cosine > -np.inf],
                self._least,
            )
            for document, row, near, others in zip(documents, rows, cosines.tolist(), nearest.tolist(), strict=True)
        ]

    def _nearest(self, rows: NDArray[np.intp], count: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Find the nearest rows of each row, leaving out passages of the same document and documents without text.

        Every row is compared with every other, so the result is exact and costs n^2.

        Returns:
            Cosines and rows, both ``(len(rows), count)``, best first; if there are fewer neighbours, the cosine is -inf.
        """
        best = np.full((len(rows), count), -np.inf, np.float32)
        where = np.zeros((len(rows), count), np.intp)
        vectors, family = self._vectors[rows], self._family[rows][:, None]
        for start in range(0, len(self._vectors), _COLUMNS):
            similar = vectors @ self._vectors[start : start + _COLUMNS].T
            similar[(family == self._family[start : start + _COLUMNS]) | self._blank[start : start + _COLUMNS]] = -np.inf
            some = _promising(similar, count)
            best = np.concatenate([best, np.take_along_axis(similar, some, axis=1)], axis=1)
            where = np.concatenate([where, some + start], axis=1)
            first = np.lexsort((where, -best), axis=1)[:, :count]
            best, where = np.take_along_axis(best, first, axis=1), np.take_along_axis(where, first, axis=1)
        return best, where


def _promising(rows: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Columns among which the `count` largest values of each row are: those of the `count` groups with the largest maxima.

    Searching all columns for the largest values would take ten times as long.
    """
    stride = rows.shape[1] // _GROUP
    if stride <= count:
        return np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
    grouped = stride * _GROUP
    maxima = rows[:, :grouped].reshape(len(rows), _GROUP, stride).max(axis=1)
    groups = np.argpartition(maxima, stride - count, axis=1)[:, -count:]
    columns = (groups[:, None] + stride * np.arange(_GROUP)[:, None]).reshape(len(rows), -1)
    over = np.broadcast_to(np.arange(grouped, rows.shape[1]), (len(rows), rows.shape[1] - grouped))
    return np.concatenate([columns, over], axis=1)
