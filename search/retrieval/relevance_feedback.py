"""Relevance feedback: make a query of documents that are known to be relevant, from their stored fields.

No model runs. The query's vector is the mean of the documents' stored vectors. Its term weights are the heaviest of the mean of
their stored impacts. Its text, for the lexical signal, is the text of the documents. If there is also a query of words, documents
and words count the same: vectors and weights are scaled to length 1 and added. This is the formula of Rocchio (1971) with
alpha = beta and without irrelevant documents.

The documents themselves are excluded from the answer. The reranker rNN uses the mean of their similarities to a candidate instead
of the query's similarity (Algorithm 1 of paper 002, line 5; `termweave.rerank.neighbourhood`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import stored_content
from termweave.dialect import dialect_of
from termweave.errors import UsageError
from termweave.records import Encoding, TermWeights
from termweave.signals.dense import VECTOR_FIELD, from_half
from termweave.signals.impacts import WeightedTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.catalog.layout import DocumentLayout
    from termweave.engine import Engine

#: Number of terms in the query, the heaviest of the documents' terms. The lighter ones occur in all texts of the corpus.
TERMS = 64
#: The most documents, and the most passages of all documents together.
_MOST = 1_000


@dataclass(frozen=True)
class Liked:
    """Documents known to be relevant, and the query made of them.

    Attributes:
        ids: Ids of the documents in the source.
        query: The query.
        vectors: float32 ``(n, d)``, one vector per document or passage; None if the index has no vectors.
    """

    ids: tuple[str, ...]
    query: Encoding
    vectors: NDArray[np.float32] | None

    @property
    def left_out(self) -> dict[str, Any]:
        """The filter that excludes the documents themselves from the answer."""
        return {"bool": {"must_not": [{"terms": {"id": list(self.ids)}}]}}


def read(engine: Engine, index: str, ids: Sequence[str], layout: DocumentLayout, query: Encoding | None = None) -> Liked:
    """Make a query of stored documents.

    Args:
        engine: The server.
        index: The concrete index.
        ids: Ids of the documents, at least one.
        layout: The signals and fields of the index.
        query: An encoded query of words to combine with the documents; None: only the documents.

    Raises:
        UsageError: The index does not hold one of the documents, or there are too many.
    """
    if len(ids) > _MOST:
        raise UsageError(f"{len(ids):,} documents are too many to search with.", f"Name at most {_MOST:,}.")
    weighted = next((signal for signal in layout.signals if isinstance(signal, WeightedTerms) and not signal.text_field), None)
    # The first passages of all documents come before any second passage. A field `passage` of an application is its own.
    first = {"passage": {"order": "asc", "missing": "_first", "unmapped_type": "integer"}}
    passages = [first] if layout.application is None else []
    body = {
        "size": _MOST,
        "query": {"terms": {"id": list(ids)}},
        "sort": [*passages, {"id": "asc"}],
        "_source": dialect_of(engine.capabilities).source([*layout.text_fields, *(weighted.properties() if weighted else ())]),
        "docvalue_fields": ["id", VECTOR_FIELD] if any(signal.needs == "dense" for signal in layout.signals) else ["id"],
    }
    hits = engine.search(index, body)["hits"]["hits"]
    stored_ids = {hit["fields"]["id"][0] for hit in hits}
    if missing := [each for each in ids if each not in stored_ids]:
        raise UsageError(
            f"The index has no document {missing[0]!r} to search with.",
            "Give an id of the source, as 'termweave search' shows it.",
        )
    sources = [layout.with_text(hit["_source"]) for hit in hits]
    texts = [stored_content(source) for source in sources]
    halves = [hit["fields"][VECTOR_FIELD][0] for hit in hits if VECTOR_FIELD in hit["fields"]]
    vectors = _stacked(halves)
    weights = None if weighted is None else _weights(weighted, sources)
    encoding = Encoding(" ".join(texts), weights, None if vectors is None else _unit(vectors.mean(axis=0)))
    return Liked(tuple(ids), encoding if query is None else _both(query, encoding), vectors)


def _stacked(halves: Sequence[str]) -> NDArray[np.float32] | None:
    """The vectors, decoded, float32 ``(n, d)``; None if there are none."""
    import numpy as np  # noqa: PLC0415

    return np.stack([from_half(half) for half in halves]) if halves else None


def _weights(signal: WeightedTerms, sources: Sequence[Mapping[str, Any]]) -> TermWeights:
    """The mean impact of each term over the documents, heaviest first. A document without the term counts 0."""
    summed: dict[str, float] = {}
    for source in sources:
        impacts = signal.impacts_of(source)
        for term, impact in zip(impacts.terms, impacts.weights.tolist(), strict=True):
            summed[term] = summed.get(term, 0.0) + impact / len(sources)
    return _heaviest(summed)


def _heaviest(weights: Mapping[str, float]) -> TermWeights:
    """The `TERMS` heaviest terms."""
    import numpy as np  # noqa: PLC0415

    kept = sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:TERMS]
    return TermWeights(tuple(term for term, _ in kept), np.array([value for _, value in kept], np.float32))


def _both(query: Encoding, liked: Encoding) -> Encoding:
    """Combine a query of words with documents, both scaled to length 1."""
    vector = liked.vector if query.vector is None else query.vector
    if query.vector is not None and liked.vector is not None:
        vector = _unit(_unit(query.vector) + liked.vector)
    weights = query.weights or liked.weights
    if query.weights and liked.weights:
        summed: dict[str, float] = {}
        for half in (query.weights, liked.weights):
            for term, value in zip(half.terms, _unit(half.weights).tolist(), strict=True):
                summed[term] = summed.get(term, 0.0) + value
        weights = _heaviest(summed)
    return Encoding(f"{query.text} {liked.text}", weights, vector)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector scaled to length 1; zeros stay zeros."""
    length = float((vector @ vector) ** 0.5)
    return vector / vector.dtype.type(length) if length > 0 else vector
