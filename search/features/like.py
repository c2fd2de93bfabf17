"""Search for documents similar to given ones, `--like ID`: relevance feedback, which makes the query from the fields stored for them.

No model runs. The query's vector is the mean of the documents' stored vectors. Its term weights are the heaviest of the mean of
their stored impacts. Its text, for the lexical signal, is the text of the documents. If the user also gives a query in words, documents
and words count the same: vectors and weights are scaled to length 1 and added. This is the formula of Rocchio (1971) with
alpha = beta and without irrelevant documents.

The given documents themselves are excluded from the answer. The reranker rNN uses the mean of their similarities to a candidate instead
of the query's similarity (Algorithm 1 of paper 002, line 5; `termweave.rerank.neighbourhood`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from termweave.catalog.layout import stored_content
from termweave.declared_settings import Setting
from termweave.dialect import dialect_of
from termweave.errors import UsageError
from termweave.records import Encoding, LikedDocuments, TermWeights
from termweave.search.feature import Feature
from termweave.signals.dense import VECTOR_FIELD, from_half
from termweave.signals.weights import WeightedTerms
from termweave.support.arguments import document_ids
from termweave.support.normal_form import in_all_forms, normal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.search.feature import Encode
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.plan import Retrieval

#: Number of terms in the query, the heaviest of the documents' terms. The lighter ones occur in all texts of the corpus.
TERMS = 64
#: The most documents, and the most passages of all documents together.
_MOST = 1_000


@dataclass(frozen=True, kw_only=True)
class LikeOptions:
    """Documents to search with.

    Attributes:
        like: Ids of documents known to be relevant: search for similar ones (`termweave.search.features.like`).
    """

    like: Annotated[
        Sequence[str],
        Setting(
            "Search for documents similar to this one, with or without a QUERY; repeatable.",
            "ID",
            heading="Options",
            repeatable=True,
            control="",
            convert=document_ids("like"),
        ),
    ] = ()


class Like(Feature[LikeOptions]):
    """Makes the query from given documents, or from documents and words, and leaves these documents out of the answer."""

    def plan(self, plan: Retrieval) -> Retrieval:
        """Add a filter that leaves the given documents out."""
        ids = set(self.options.like)
        if len(ids) > _MOST:
            raise UsageError(f"{len(ids):,} documents are too many to search with.", f"Name at most {_MOST:,}.")
        without = self.search.generation.layout.with_ids(in_all_forms(dict.fromkeys(self.options.like)))
        return replace(plan, where=[*plan.where, {"bool": {"must_not": [without]}}])

    def encode(self, texts: Sequence[str], inner: Encode) -> list[Encoding]:
        """Encode each query of words, and add the encodings of the given documents. A query may be empty, or only exclude words."""
        liked = encoding_of(self.search.generation, tuple(dict.fromkeys(self.options.like)))
        combined = []
        for text in texts:
            both = liked
            if text.strip():
                (words,) = inner([text])
                both = _both(words, liked) if words.text.strip() else liked
                if words.rewritten is not None:
                    refusal = None if words.rewritten.operators else words.rewritten.refusal
                    both = replace(both, rewritten=replace(words.rewritten, parts=(), refusal=refusal))
            combined.append(both)
        return combined


def encoding_of(generation: OpenGeneration, ids: Sequence[str]) -> Encoding:
    """Make an encoded query from stored documents.

    Args:
        generation: The generation that is searched.
        ids: Ids of the documents, at least one and at most 1,000.

    Raises:
        UsageError: The index does not hold one of the documents.
    """
    import numpy as np  # noqa: PLC0415 - not needed by `--help`

    layout, dialect = generation.layout, dialect_of(generation.engine.capabilities)
    weighted = next((signal for signal in layout.signals if isinstance(signal, WeightedTerms) and not signal.text_fields), None)
    # The first passages of all documents come before any second passage. A field `passage` of an application is its own.
    first = {"passage": {"order": "asc", "missing": "_first", "unmapped_type": "integer"}}
    passages = [first] if layout.application is None else []
    vector_field = f"{layout.prefix}{VECTOR_FIELD}"
    read = [f"{layout.prefix}{name}" for name in (weighted.properties() if weighted else ())]
    body = {
        "size": _MOST,
        "query": layout.with_ids(in_all_forms(ids)),
        "sort": [*passages, {layout.id_field: "asc"}],
        "_source": dialect.source([*layout.text_fields, *read]),
        "docvalue_fields": [layout.id_field, *[vector_field] * any(signal.needs == "dense" for signal in layout.signals)],
    }
    hits = generation.engine.search(generation.index, body)["hits"]["hits"]
    stored_ids = {normal(str(layout.id_of(hit))) for hit in hits}
    if missing := [each for each in ids if normal(each) not in stored_ids]:
        hint = "Give an id of the source, as 'termweave search' shows it."
        raise UsageError(f"The index has no document {missing[0]!r} to search with.", hint)
    contents = [stored_content(layout.with_text(hit["_source"])) for hit in hits]
    halves = [hit["fields"][vector_field][0] for hit in hits if vector_field in hit.get("fields", ())]
    vectors = np.stack([from_half(half) for half in halves]) if halves else None
    impacts = [weighted.impacts_of(layout.of_signals(hit["_source"])) for hit in hits] if weighted else []
    # A document without a term counts 0.
    means = [(each.terms, [impact / len(hits) for impact in each.weights.tolist()]) for each in impacts]
    mean = None if vectors is None else _unit(vectors.mean(axis=0))
    return Encoding(" ".join(contents), _heaviest(means) if weighted else None, mean, liked=LikedDocuments(tuple(ids), vectors))


def _heaviest(lists: Iterable[tuple[Sequence[str], Sequence[float]]]) -> TermWeights:
    """Add up the weights of each term over several lists of terms and weights, and keep the `TERMS` heaviest terms."""
    import numpy as np  # noqa: PLC0415

    summed: dict[str, float] = {}
    for terms, weights in lists:
        for term, weight in zip(terms, weights, strict=True):
            summed[term] = summed.get(term, 0.0) + weight
    heaviest = sorted(summed.items(), key=lambda pair: (-pair[1], pair[0]))[:TERMS]
    return TermWeights(tuple(term for term, _ in heaviest), np.array([weight for _, weight in heaviest], np.float32))


def _both(query: Encoding, liked: Encoding) -> Encoding:
    """Combine the encoded query of words with the encoded documents; vectors and weights of both are scaled to length 1 before."""
    vector = liked.vector if query.vector is None else query.vector
    if query.vector is not None and liked.vector is not None:
        vector = _unit(_unit(query.vector) + liked.vector)
    weights = query.weights or liked.weights
    if query.weights and liked.weights:
        weights = _heaviest((half.terms, _unit(half.weights).tolist()) for half in (query.weights, liked.weights))
    return Encoding(f"{query.text} {liked.text}", weights, vector, liked=liked.liked)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a vector to length 1; a vector of zeros stays as it is."""
    length = float((vector @ vector) ** 0.5)
    return vector / vector.dtype.type(length) if length > 0 else vector
