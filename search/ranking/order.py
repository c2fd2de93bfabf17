"""From candidates to an order: fusion, then reranking. No engine in here, so that evaluation reuses the same lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from termweave import plugins
from termweave.errors import UsageError
from termweave.records import SignalScore
from termweave.search.fusion import Fusion, fuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.rerank import Neighbourhood
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
        method: What gives J: "rnn", or the name that another package's has among `termweave.rerankers`: a function with the arguments
            and the answer of `termweave.rerank.neighbourhood`.
    """

    candidates: int = 60
    k: int = 10
    k_exp: int = 3
    tau: float = 0.0
    weight: float = 0.75
    similarity: Literal["fused", "dense"] = "fused"
    method: str = "rnn"

    def __post_init__(self) -> None:
        """Raise `UsageError` for what cannot be; `Rules` looks at the rest."""
        if self.candidates < 1:
            raise UsageError(f"rNN needs at least 1 candidate; N is {self.candidates}.", "Use --rerank none to leave it out.")
        if not 0 <= self.weight <= 1:
            raise UsageError(f"The rNN weight must lie in [0, 1]; it is {self.weight}.")


def chosen_reranking(name: str | None, parameters: Reranking | None) -> Reranking | None:
    """What a reranker's name means, with parameters or the default ones; None for "none".

    No name means the parameters, if there are any; "rnn@dense" mixes with the inner product in place of the fused score.

    Raises:
        UsageError: There is no such reranker.
    """
    if not isinstance(parameters, Reranking | None):
        raise UsageError(
            f"reranking is a Reranking, not {type(parameters).__name__}.",
            "Write reranking=Reranking(k=5), from termweave.search.ranking.",
        )
    if name is None:
        return parameters
    if not isinstance(name, str):
        raise UsageError(f"rerank is the name of a reranker, not {name!r}.", 'Write rerank="rnn".')
    if name == "none":
        return None
    method, at, similarity = name.partition("@")
    known = plugins.names("rerankers")
    if method not in known or (at and similarity not in {"fused", "dense"}):
        raise UsageError(f"There is no reranker {name!r}.", f"Known: none, {', '.join(known)}, and each of them with @dense.")
    chosen = replace(parameters or Reranking(), method=method)
    return replace(chosen, similarity="dense" if similarity == "dense" else "fused") if at else chosen


@dataclass(frozen=True, slots=True)
class Place:
    """One document in the order.

    Attributes:
        id: Source id.
        score: Final score; the shares of `signals` and `rerank` sum to it.
        signals: Signal name -> what it said and contributes.
        rerank: For a reranked document: "name", "jaccard", "weight", "share", "similarity".
        neighbours: Gives the ids that it shares with the query, for a reranked document; explanations ask.
    """

    id: str
    score: float
    signals: Mapping[str, SignalScore] = field(default_factory=dict)
    rerank: Mapping[str, Any] | None = None
    neighbours: Callable[[], list[str]] = field(default=list, repr=False, compare=False)


def order(candidates: Candidates, mode: Mode, reranking: Reranking | None = None, limit: int | None = None) -> list[Place]:
    """Rank the candidates of one query.

    One signal alone keeps its own scores. Several are fused into [0, 1]. Reranking mixes that fused score with the
    neighbours' J; documents beyond its N keep ``weight * fused``, which no reranked document can fall below, J being >= 0.

    Args:
        candidates: What the signals found.
        mode: Signals and their weights.
        reranking: Parameters of the reranker; None: none.
        limit: How many places are wanted; all candidates take part all the same. None: all.
    """
    lists = {name: candidates.lists[name] for name in mode.weights}
    if mode.single and reranking is None:
        ((name, ranked),) = lists.items()
        return [
            Place(document, score, {name: SignalScore(score, place, score)})
            for place, (document, score) in enumerate(islice(ranked.scores.items(), limit), 1)
        ]
    fused = fuse(lists, mode.weights, mode.fusion)
    if reranking is not None:
        return _reranked(candidates, fused, reranking, limit)
    wanted = fused.ranking[:limit]
    said = fused.said({document for document, _ in wanted})
    return [Place(document, score, said[document]) for document, score in wanted]


def _reranked(candidates: Candidates, fused: Fusion, reranking: Reranking, limit: int | None) -> list[Place]:
    """`order` for several lists with a reranker: the head mixed with the neighbours' J, the tail below it."""
    from termweave.rerank import Rules  # noqa: PLC0415 - numpy, only where somebody reranks

    size = reranking.candidates
    if all(ranked.within < size for ranked in fused.lists.values()):
        # Not beyond the window, however far somebody pages: what lies there has no fused score to be mixed.
        size = min(size, len({each for ranked in fused.lists.values() for each in islice(ranked.scores, ranked.within)}))
    head, tail = fused.ranking[:size], fused.ranking[size:]
    if not fused.ranking:
        return []
    if candidates.query.vector is None:
        raise UsageError(
            "Reranking by neighbours needs the query's vector, and this index has no dense model.",
            "Use --rerank none, or index with one.",
        )
    ids = [document for document, _ in head]
    vectors = candidates.matrix(ids)  # who has none is nobody's neighbour: J is 0
    rules = Rules(reranking.k, reranking.k_exp, reranking.tau, clamp=True)
    lam, by_dense = reranking.weight, reranking.similarity == "dense"
    reranker = plugins.load("rerankers", reranking.method)
    with plugins.answerable("rerankers", reranking.method):
        found: Neighbourhood = reranker(candidates.query.vector, vectors, rules, candidates.liked)
        jaccard, near = found.jaccard.tolist(), found.similarity.tolist()
    if not (len(jaccard) == len(near) == len(ids) and math.isfinite(sum(jaccard) + sum(near))):
        raise UsageError(
            f"The reranker {reranking.method!r} did not give a finite number for each of {len(ids)} candidates.",
            "Use --rerank none or rnn.",
        )
    similarity: list[float] = near if by_dense else [score for _, score in head]
    total = [lam * first + (1 - lam) * shared for first, shared in zip(similarity, jaccard, strict=True)]
    best = sorted(range(len(head)), key=lambda row: (-total[row], ids[row]))
    # With the inner product as s the two scales differ: nothing outside N may pass what was reranked.
    lowest = total[best[-1]] if by_dense else lam
    drop = min(lowest - lam, 0.0)
    shown, below = best[:limit], tail[: None if limit is None else max(0, limit - len(head))]
    said = fused.said({ids[row] for row in shown}, 0.0 if by_dense else lam)
    places = []
    for row in shown:
        rerank = {
            "name": reranking.method,
            "jaccard": jaccard[row],
            "weight": lam,
            "share": (1 - lam) * jaccard[row] + (lam * similarity[row] if by_dense else 0.0),
            "similarity": similarity[row],
        }
        places.append(Place(ids[row], total[row], said[ids[row]], rerank, partial(_shared, found, ids, row)))
    said = fused.said({document for document, _ in below}, lam)
    for document, score in below:
        rerank = {"name": reranking.method, "jaccard": 0.0, "weight": lam, "share": drop, "similarity": score}
        places.append(Place(document, lam * score + drop, said[document], rerank))
    return places


def beneath(places: Sequence[Place], document: str, reranking: Reranking | None = None) -> Place:
    """The place of a document that no signal returned: below the last, whose score is below 0 where inner products are mixed in."""
    lowest = min(0.0, places[-1].score) if places and reranking is not None else 0.0
    if reranking is None or not lowest:
        return Place(document, 0.0)
    rerank = {"name": reranking.method, "jaccard": 0.0, "weight": reranking.weight, "share": lowest, "similarity": 0.0}
    return Place(document, lowest, {}, rerank)


def _shared(found: Neighbourhood, ids: Sequence[str], row: int) -> list[str]:
    return [ids[other] for other in found.neighbours(row)]
