"""Relevance feedback: a query made of documents that are known to be relevant, from what the index holds of them.

Nothing is encoded again: the query's vector is the mean of the documents' stored vectors, its term weights are the mean of
their stored impacts (the heaviest terms of it), its words, for the lexical signal, are their texts. With a query of words
besides, both halves count the same: vectors and weights are scaled to length 1 and added. This is Rocchio's formula without
documents known to be irrelevant (Rocchio, 1971), alpha = beta.

The documents themselves are left out of the answer. The reranking by neighbours takes their similarity to each candidate,
averaged over them, in the place of the query's (Algorithm 1 of paper 002, line 5; `termweave.rerank.neighbourhood`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.records import Document, Encoding, TermWeights
from termweave.signals.dense import VECTOR_FIELD, from_half
from termweave.signals.layout import stored_text
from termweave.signals.terms import WeightedTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.engine import Engine
    from termweave.signals import Signal

#: Of all terms of the documents so many, the heaviest: the others are what every text of the corpus has.
TERMS = 64
#: Documents, or passages of all of them together: the first of each.
_MOST = 1_000


@dataclass(frozen=True)
class Liked:
    """Documents known to be relevant.

    Attributes:
        ids: Of the source.
        query: What to search with.
        vectors: float32 ``(n, d)``, where the index has vectors: one for each document or passage.
    """

    ids: tuple[str, ...]
    query: Encoding
    vectors: NDArray[np.float32] | None

    @property
    def left_out(self) -> dict[str, Any]:
        """The filter that keeps the documents themselves out of the answer."""
        return {"bool": {"must_not": [{"terms": {"id": list(self.ids)}}]}}


def read(engine: Engine, index: str, ids: Sequence[str], signals: Sequence[Signal], query: Encoding | None = None) -> Liked:
    """Make a query of stored documents.

    Args:
        engine: Where the index is.
        index: The concrete index.
        ids: The documents, at least one.
        signals: The signals of the index.
        query: A query of words besides.

    Raises:
        UsageError: The index does not hold one of them, or they are too many.
    """
    if len(ids) > _MOST:
        raise UsageError(f"{len(ids):,} documents are too many to search with.", f"Name at most {_MOST:,}.")
    weighted = next((signal for signal in signals if isinstance(signal, WeightedTerms)), None)
    body = {
        "size": _MOST,
        "query": {"terms": {"id": list(ids)}},
        # Each document's first passage before anyone's second.
        "sort": [{"passage": {"order": "asc", "missing": "_first"}}, {"id": "asc"}],
        "_source": ["title", "text", *(weighted.properties() if weighted else ())],
        "docvalue_fields": ["id", VECTOR_FIELD] if any(signal.needs == "dense" for signal in signals) else ["id"],
    }
    hits = engine.request("POST", f"/{index}/_search", body=body)["hits"]["hits"]
    found = {hit["fields"]["id"][0] for hit in hits}
    if missing := [each for each in ids if each not in found]:
        raise UsageError(
            f"The index has no document {missing[0]!r} to search with.",
            "Ids are those of the source; 'termweave search' shows them.",
        )
    sources = [hit["_source"] for hit in hits]
    texts = [Document("", stored_text(source, "text"), stored_text(source, "title")).content for source in sources]
    halves = [hit["fields"][VECTOR_FIELD][0] for hit in hits if VECTOR_FIELD in hit["fields"]]
    vectors = _stacked(halves)
    weights = None if weighted is None else _weights(weighted, sources)
    encoding = Encoding(" ".join(texts), weights, None if vectors is None else _unit(vectors.mean(axis=0)))
    return Liked(tuple(ids), encoding if query is None else _both(query, encoding), vectors)


def _stacked(halves: Sequence[str]) -> NDArray[np.float32] | None:
    import numpy as np  # noqa: PLC0415

    return np.stack([from_half(each) for each in halves]) if halves else None


def _weights(signal: WeightedTerms, sources: Sequence[Mapping[str, Any]]) -> TermWeights:
    """Mean impacts of the documents' terms, the heaviest first; a document without a term counts 0."""
    summed: dict[str, float] = {}
    for source in sources:
        found = signal.impacts_of(source)
        for term, impact in zip(found.terms, found.weights.tolist(), strict=True):
            summed[term] = summed.get(term, 0.0) + impact / len(sources)
    return _heaviest(summed)


def _heaviest(weights: Mapping[str, float]) -> TermWeights:
    import numpy as np  # noqa: PLC0415

    kept = sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:TERMS]
    return TermWeights(tuple(term for term, _ in kept), np.array([value for _, value in kept], np.float32))


def _both(query: Encoding, liked: Encoding) -> Encoding:
    """Words and documents, both scaled to length 1."""
    vector = liked.vector if query.vector is None else query.vector
    if query.vector is not None and liked.vector is not None:
        vector = _unit(_unit(query.vector) + liked.vector)
    weights = query.weights or liked.weights
    if query.weights and liked.weights:
        summed: dict[str, float] = {}
        for each in (query.weights, liked.weights):
            for term, value in zip(each.terms, _unit(each.weights).tolist(), strict=True):
                summed[term] = summed.get(term, 0.0) + value
        weights = _heaviest(summed)
    return Encoding(f"{query.text} {liked.text}", weights, vector)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float((vector @ vector) ** 0.5)
    return vector / vector.dtype.type(length) if length > 0 else vector
