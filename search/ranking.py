"""From candidates to an order: fusion, then reranking. No engine in here, so that evaluation reuses the same lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from termweave.errors import UsageError
from termweave.records import SignalScore
from termweave.search.fusion import fuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.search.candidates import Candidates
    from termweave.search.modes import Mode


@dataclass(frozen=True, slots=True)
class Reranking:
    """Parameters of the reciprocal-nearest-neighbour reranking.

    The values hold for unit vectors; they were fitted per encoder by nobody, so `tune` has the last word.

    Attributes:
        candidates: N, how many of the first stage take part; the rest keep their order below.
        k: Neighbours besides the element itself.
        k_exp: Entries averaged.
        tau: Expansion.
        weight: lambda, share of the first-stage similarity.
        similarity: "fused": s is the fused score in [0, 1]; "dense": the paper's inner product.
    """

    candidates: int = 60
    k: int = 10
    k_exp: int = 3
    tau: float = 0.0
    weight: float = 0.75
    similarity: Literal["fused", "dense"] = "fused"


@dataclass(frozen=True, slots=True)
class Place:
    """One document in the order.

    Attributes:
        id: Source id.
        score: Final score; the shares of `signals` and `rerank` sum to it.
        signals: Signal name -> what it said and contributes.
        rerank: For a reranked document: "jaccard", "weight", "share", "similarity", "neighbours".
    """

    id: str
    score: float
    signals: Mapping[str, SignalScore] = field(default_factory=dict)
    rerank: Mapping[str, Any] | None = None


def order(candidates: Candidates, mode: Mode, reranking: Reranking | None = None) -> list[Place]:
    """Rank the candidates of one query.

    One signal alone keeps its own scores. Several are fused into [0, 1]. Reranking mixes that fused score with the
    neighbours' J; documents beyond its N keep ``weight * fused``, which no reranked document can fall below, J being >= 0.
    """
    lists = {name: candidates.lists[name] for name in mode.weights}
    if mode.single and reranking is None:
        ((name, ranked),) = lists.items()
        return [
            Place(document, score, {name: SignalScore(score, place, score)})
            for place, (document, score) in enumerate(ranked.scores.items(), 1)
        ]
    fused = fuse(lists, mode.weights)
    said = _said(lists, mode)
    if reranking is None:
        return [Place(document, score, said[document]) for document, score in fused]
    return _reranked(candidates, fused, said, reranking)


def _said(lists: Mapping[str, Any], mode: Mode) -> dict[str, dict[str, SignalScore]]:
    """What each signal said of each document, with its share of the fused score."""
    said: dict[str, dict[str, SignalScore]] = {}
    for name, ranked in lists.items():
        for place, (document, score) in enumerate(ranked.scores.items(), 1):
            share = mode.weights[name] * ranked.normalised(score)
            said.setdefault(document, {})[name] = SignalScore(score, place, share)
    return said


def _reranked(
    candidates: Candidates, fused: list[tuple[str, float]], said: Mapping[str, Mapping[str, SignalScore]], reranking: Reranking
) -> list[Place]:
    import numpy as np  # noqa: PLC0415 - `--help` does not rank

    from termweave.rerank import Rules, neighbourhood  # noqa: PLC0415

    head, tail = fused[: reranking.candidates], fused[reranking.candidates :]
    if not head:
        return []
    if candidates.query.vector is None:
        raise UsageError(
            "Reranking by neighbours needs the query's vector, and this index has no dense model.",
            "Use --rerank none, or index with one.",
        )
    # A candidate without a vector (no text, or not ours) is nobody's neighbour: J is 0.
    nowhere = np.zeros_like(candidates.query.vector)
    vectors = np.stack([candidates.vectors.get(document, nowhere) for document, _ in head])
    rules = Rules(reranking.k, reranking.k_exp, reranking.tau, clamp=True)
    found = neighbourhood(candidates.query.vector, vectors, rules, candidates.liked)
    lam = reranking.weight
    ids = [document for document, _ in head]
    places = []
    for row, (document, score) in enumerate(head):
        jaccard = float(found.jaccard[row])
        rerank: dict[str, Any] = {"jaccard": jaccard, "weight": lam, "share": (1 - lam) * jaccard}
        rerank["neighbours"] = [ids[other] for other in found.neighbours(row)]
        if reranking.similarity == "dense":
            rerank["similarity"] = float(found.similarity[row])
            rerank["share"] += lam * rerank["similarity"]
            signals = _scaled(said[document], 0.0)
        else:
            rerank["similarity"] = score
            signals = _scaled(said[document], lam)
        total = rerank["share"] + sum(each.share for each in signals.values())
        places.append(Place(document, total, signals, rerank))
    places.sort(key=lambda place: (-place.score, place.id))
    # With the inner product as s the two scales differ: nothing outside N may pass what was reranked.
    lowest = places[-1].score if reranking.similarity == "dense" else lam
    below = []
    for document, score in tail:
        signals = _scaled(said[document], lam)
        drop = lowest - lam if lowest < lam else 0.0
        rerank = {"jaccard": 0.0, "weight": lam, "share": drop, "similarity": score, "neighbours": []}
        below.append(Place(document, lam * score + drop, signals, rerank))
    return places + below


def _scaled(said: Mapping[str, SignalScore], factor: float) -> dict[str, SignalScore]:
    return {name: SignalScore(each.score, each.rank, factor * each.share) for name, each in said.items()}
