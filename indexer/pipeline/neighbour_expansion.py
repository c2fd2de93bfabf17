"""Words of the nearest documents: what a document's neighbours say counts as if it said so itself, but less.

    w'(t, d) = max(w(t, d), 1/n * sum over the n documents e nearest to d of cos(d, e) * w(t, e))

Document expansion by neighbours (Singhal and Pereira 1999; Tao, Wang, Mei and Zhai 2006), with learned weights for their
language models and vectors for the neighbourhood. The larger of the two and not their sum, so that what tells a document from
its neighbours keeps its weight: a sum costs where documents differ in one name alone.

A build needs all encodings before the first document can be sent, so it encodes the source first and keeps what comes on the
disk: a build that was killed goes on there. An update asks the index for the neighbours of the documents that it sends.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import orjson

from termweave.indexer import encoded
from termweave.indexer.survey import blocks
from termweave.records import Encoding, TermWeights
from termweave.search.candidates import hits_of
from termweave.sequences import in_parts
from termweave.signals.terms import WeightedTerms, scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.survey import Progress
    from termweave.records import Document
    from termweave.signals import DocumentLayout
    from termweave.statistics import CorpusStatistics

    Encode = Callable[[Sequence[Document]], list[Encoding]]

#: The stage in which nothing is sent yet.
ENCODING = "Encoding"
#: Words of neighbours that would weigh less than this share of the scale's top are left out: most of the words, little of the gain.
_LEAST = 0.04
#: Documents that are compared at once, and with how many: so many cosines are 128 MiB, and picking the best takes thrice that.
_ROWS, _COLUMNS = 512, 1 << 16
#: Columns of cosines whose largest is looked at in place of them all.
_GROUP = 16
#: k-NN searches in one request.
_SEARCHES = 64


def alone(encoder: TextEncoder, statistics: CorpusStatistics | None) -> Encode:
    """Documents by what they say themselves."""

    def encode(documents: Sequence[Document]) -> list[Encoding]:
        return encoder.encode([document.content for document in documents], kind="document", statistics=statistics)

    return encode


def joined(own: TermWeights, near: Sequence[tuple[float, TermWeights]], least: float) -> TermWeights:
    """The weights of a document together with those of its neighbours.

    Args:
        own: Of the document. One that says nothing stays so: what its vector is near to means nothing.
        near: (cosine, weights) of each neighbour; one that points away says nothing.
        least: Lighter words of neighbours are left out.

    Returns:
        The document's own terms in their order, none of them lighter than before, and then the new ones.

    Example:
        >>> weights = lambda **each: TermWeights(tuple(each), np.array(list(each.values()), np.float32))
        >>> joined(weights(bank=4.0), [(0.5, weights(river=4.0)), (1.0, weights(bank=1.0))], least=0.5).as_dict()
        {'bank': 4.0, 'river': 1.0}
    """
    if not len(own) or not near:
        return own
    said: defaultdict[str, float] = defaultdict(float)
    for cosine, weights in near:
        if cosine > 0:
            for term, weight in zip(weights.terms, weights.weights.tolist(), strict=True):
                said[term] += cosine / len(near) * weight
    merged = dict(zip(own.terms, own.weights.tolist(), strict=True))
    merged |= {term: weight for term, weight in said.items() if weight >= least and weight > merged.get(term, 0.0)}
    return TermWeights(tuple(merged), np.array(list(merged.values()), np.float32))


def from_source(source: Source, encode: Encode, ledger: Ledger, count: int, progress: Progress) -> Encode:
    """Documents with the words of their neighbours in the source.

    Encodes all of the source first, into files beside the ledger; those that are there already are of a build that was
    stopped, and `resuming` has seen to it that source, models and settings are the same.

    Args:
        source: The documents, or their passages; of several with one id the first counts, as for the survey.
        encode: What they say themselves, weights and vectors.
        ledger: Of the generation.
        count: How many neighbours.
        progress: Told (stage, done, total).

    Returns:
        What encodes documents of this source; it holds all encodings: of each the vector and 1.2 KB.

    Raises:
        TermweaveError: A file cannot be written.
    """
    corpus, total = Corpus(), ledger.total
    lines: dict[str, int | None] = {}  # of the documents, where each stands first
    for number, block in enumerate(blocks(source.documents(), total)):
        kept = [document for document in block if lines.setdefault(document.source_id, document.line) == document.line]
        if not kept:
            continue
        path = encoded.file(ledger, number)
        found = encoded.read(path, kept)
        if found is None:
            progress(ENCODING, len(corpus.rows), total)
            found = encode(kept)
            encoded.keep(path, kept, found)
        corpus.add(kept, found)
    progress(ENCODING, len(corpus.rows), total)
    corpus.close()
    return lambda documents: corpus.expanded(documents, count)


def from_index(engine: Engine, index: str, layout: DocumentLayout, encode: Encode, count: int) -> Encode:
    """Documents with the words of their neighbours in an index, as they are stored there: with those of theirs.

    Args:
        engine: Where it is.
        index: A generation, refreshed.
        layout: Of its documents, with vectors and weights.
        encode: What the documents say themselves.
        count: How many neighbours.
    """
    dense = next(signal for signal in layout.signals if signal.needs == "dense")
    # Of two the finer one.
    terms = max((signal for signal in layout.signals if isinstance(signal, WeightedTerms)), key=lambda signal: signal.levels)

    def near(parts: Sequence[tuple[Document, Encoding]]) -> Iterable[list[tuple[float, TermWeights]]]:
        clauses, lines = [], []
        for document, encoding in parts:
            others = {"bool": {"must_not": [{"term": {"id": document.source_id}}]}}
            clause = dense.clause(encoding, size=count, where=[others], capabilities=engine.capabilities)
            assert clause is not None  # of a text
            clauses.append(clause)
            body = {"query": clause.query, "size": count, "_source": list(terms.properties())}
            lines += [b"{}", orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)]
        answers = engine.request("POST", f"/{index}/_msearch", body=b"\n".join(lines) + b"\n")["responses"]
        for clause, answer in zip(clauses, answers, strict=True):
            yield [(dense.score(hit["_score"], clause), terms.impacts_of(hit["_source"])) for hit in hits_of(answer, dense.name)]

    def expanded(documents: Sequence[Document]) -> list[Encoding]:
        encodings = encode(documents)
        say = [place for place, each in enumerate(encodings) if each.weights and each.text.strip()]
        for places in in_parts(say, _SEARCHES):
            found = near([(documents[place], encodings[place]) for place in places])
            for place, others in zip(places, found, strict=True):
                encodings[place] = _with(encodings[place], others, _LEAST * terms.w_max)
        return encodings

    return expanded


def _with(encoding: Encoding, near: Sequence[tuple[float, TermWeights]], least: float) -> Encoding:
    assert encoding.weights is not None
    return replace(encoding, weights=joined(encoding.weights, near, least))


class Corpus:
    """The encodings of a whole source.

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
        """Take a block in; every term is held once, however many documents have it."""
        for document, encoding in zip(documents, encodings, strict=True):
            assert encoding.weights is not None
            self.rows[document.id, document.line] = len(self.rows)
            first = document.passage is None or document.passage.number == 1  # the others of that document come right behind
            self._families.append((self._families[-1] if self._families else 0) + first)
            self._blanks.append(document.blank)
            self._weights.append(TermWeights(tuple(map(sys.intern, encoding.weights.terms)), encoding.weights.weights))
        self._parts.append(encoded.vectors(encodings))

    def close(self) -> None:
        """All are in; a part of the vectors goes as it is copied, so that they are not held twice."""
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
        """Encodings of some of them, weights joined with those of their neighbours."""
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
        """Cosines and rows of the nearest that are no passage of the same document; both ``(len(rows), count)``, best first.

        Documents without any text are none, in the index neither: they have no vector there. Where there are fewer, the cosine is
        -inf. All are compared: what is nearest is exact, and costs n^2.
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
    """Columns among which the `count` largest of each row are: all of the `count` groups of columns with the largest maxima.

    To look for the largest themselves takes ten times as long.
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
