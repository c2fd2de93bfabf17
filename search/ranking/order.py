"""Rank candidates: fuse the lists of the signals, then rerank. This module sends no requests, so that evaluation can rank the same lists often."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.errors import UsageError
from termweave.records import SignalScore
from termweave.rerank.rerankers import CutShort, Reranker, Reranking, RerankRequest, RerankResult
from termweave.signals.fusion import Fusion, fuse

if TYPE_CHECKING:
    from termweave.search.retrieval.candidates import Candidates
    from termweave.signals.modes import Mode

    #: Document ids with their scores, best first.
    Scored = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class RerankShare:
    """The part of a document's score that one reranker gave.

    Attributes:
        name: Name of the reranker.
        share: The number that the reranker contributes to the final score.
        details: Returns JSON values about the share for an explanation.
        word_effects: Returns the words of the text with the largest effect on the reranker's score, as `RerankResult.word_effects`.
    """

    name: str
    share: float
    details: Callable[[], Mapping[str, Any]] = field(default=dict, repr=False, compare=False)
    word_effects: Callable[[], list[dict[str, Any]]] = field(default=list, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A document in a ranking.

    Attributes:
        id: Id of the document in the source.
        score: The final score, which is the sum of the shares in `signals` and `reranked`.
        signals: Signal name -> the signal's score, rank and share.
        reranked: The share of each reranker in the final score, in the order in which the rerankers ran.
    """

    id: str
    score: float
    signals: Mapping[str, SignalScore] = field(default_factory=dict)
    reranked: tuple[RerankShare, ...] = ()


def order(
    candidates: Candidates,
    mode: Mode,
    reranking: Reranking | None = None,
    limit: int | None = None,
    report: Callable[[CutShort], None] = lambda _: None,
) -> list[Place]:
    """Rank the candidates of one query.

    A single signal keeps its own scores. The scores of several signals are fused into [0, 1]. Each reranker then changes the
    scores of its best candidates (`termweave.rerank.rerankers`); all other documents stay below these. Pinned documents come first.

    Args:
        candidates: The ranked list of each signal for the query.
        mode: Signals and their weights.
        reranking: The rerankers; None: no reranking.
        limit: How many documents to return; None: all of them. All candidates are ranked in either case.
        report: Called with a note on each reranker whose time budget ended before it had scored its candidates.
    """
    if candidates.pinned:
        return with_pinned(order(replace(candidates, pinned=()), mode, reranking, None, report), candidates.pinned)[:limit]
    lists = {name: candidates.lists[name] for name in mode.weights}
    if mode.single and reranking is None:
        ((name, ranked),) = lists.items()
        return [
            Place(document, score, {name: SignalScore(score, place, score)})
            for place, (document, score) in enumerate(islice(ranked.scores.items(), limit), 1)
        ]
    fused = fuse(lists, mode.weights, mode.fusion)
    if reranking is not None:
        return _reranked(candidates, fused, reranking, limit, report)
    best = fused.ranking[:limit]
    scores = fused.signal_scores({document for document, _ in best})
    return [Place(document, score, scores[document]) for document, score in best]


def with_pinned(places: Sequence[Place], pinned: Sequence[str]) -> list[Place]:
    """Put the pinned documents first, in the given order.

    Each has a score 1 above the next one's. The last has a score 1 above the best of all other documents, and at least 2.

    Args:
        places: The ranked documents.
        pinned: Ids of the pinned documents; some of them may not be in the ranking.
    """
    ranked = {place.id: place for place in places}
    others = ranked.keys() - pinned
    top = max(1.0, places[0].score if places else 1.0)
    first = []
    for number, document in enumerate(pinned):
        place = ranked.get(document, Place(document, 0.0))
        lift = RerankShare("pin", top + len(pinned) - number - place.score, partial(dict, pinned=number + 1))
        first.append(Place(document, place.score + lift.share, place.signals, (*place.reranked, lift)))
    return [*first, *(place for place in places if place.id in others)]


def below_all(places: Sequence[Place], document: str, reranking: Reranking | None) -> Place:
    """Make a place for a document that no signal returned, below all ranked documents.

    Its score is 0, or that of the last place if this is negative, for example when rNN mixes in inner products.
    """
    lowest = places[-1].score if places else 0.0
    if reranking is None or lowest >= 0:
        return Place(document, 0.0)
    return Place(document, lowest, {}, (RerankShare(reranking.stages[-1].name, lowest),))


@dataclass(frozen=True, slots=True)
class _Stage:
    """The effect of one reranker on the scores of a ranking.

    Attributes:
        name: Name of the reranker.
        rows: Id of each reranked document -> the document's row in the result.
        below: Id of each document below the reranked ones -> score before this stage.
        result: The reranker's result, with a share for each row.
        keep_below: Factor of the earlier scores of the documents below.
        offset: The number that is added to the scores of the documents below, so that they stay below; at most 0.
    """

    name: str
    rows: Mapping[str, int]
    below: Mapping[str, float]
    result: RerankResult
    keep_below: float
    offset: float

    def share(self, document: str, scale: float) -> tuple[RerankShare, float]:
        """The reranker's share in a document's final score, and the factor by which the score before this stage counts in the final score.

        Args:
            document: Id of the document.
            scale: The factor by which this stage's score counts in the final score, after all later stages.
        """
        row = self.rows.get(document)
        if row is None:
            details = partial(self.result.details_below, self.below[document])
            return RerankShare(self.name, scale * self.offset, details), scale * self.keep_below
        details, effects = partial(self.result.details, row), partial(self.result.word_effects, row)
        return RerankShare(self.name, scale * self.result.shares[row], details, effects), scale * self.result.keep


def _reranked(
    candidates: Candidates, fused: Fusion, reranking: Reranking, limit: int | None, report: Callable[[CutShort], None]
) -> list[Place]:
    """Rank fused lists with rerankers: run these one after the other, then add up the shares of each document."""
    ranking: Scored = fused.ranking
    if not ranking:
        return []
    stages = []
    for reranker in reranking.stages:
        ranking, stage = _run(reranker, candidates, ranking, fused.lists, head_size(fused, reranker.candidates))
        stages.append(stage)
        if stage.result.scored is not None:
            report(CutShort(stage.name, stage.result.scored, len(stage.rows)))
    shares: dict[str, tuple[RerankShare, ...]] = {}
    by_scale: dict[float, set[str]] = {}
    for document, _ in ranking[:limit]:
        scale = 1.0
        parts = []
        for stage in reversed(stages):
            part, scale = stage.share(document, scale)
            parts.append(part)
        shares[document] = tuple(reversed(parts))
        by_scale.setdefault(scale, set()).add(document)
    signals: dict[str, dict[str, SignalScore]] = {}
    for scale, documents in by_scale.items():
        signals |= fused.signal_scores(documents, scale)
    return [Place(document, score, signals[document], shares[document]) for document, score in ranking[:limit]]


def head_size(fused: Fusion, size: int) -> int:
    """The number of documents that a reranker gets: at most `size`, and only documents in the windows of the lists.

    So a deeper page, with longer lists, does not change the scores.
    """
    lists = fused.lists.values()
    if all(ranked.within < size for ranked in lists):
        return min(size, len({document for ranked in lists for document in islice(ranked.scores, ranked.within)}))
    return size


def _run(
    reranker: Reranker, candidates: Candidates, ranking: Scored, signals: Collection[str], size: int
) -> tuple[Scored, _Stage]:
    """Let a reranker score the first `size` documents of a ranking; return the new ranking, and the effect of the reranker.

    In an index of passages, the passages that these signals returned stand for the documents.

    Raises:
        UsageError: The reranker did not give a finite number for each candidate.
    """
    head, tail = ranking[:size], ranking[size:]
    ids, scores = [document for document, _ in head], [score for _, score in head]
    keys = candidates.keys(ids, signals)
    request = RerankRequest(
        candidates.query,
        ids,
        scores,
        candidates.matrix(candidates.keys(ids, signals, "dense"))
        if "vectors" in reranker.needs and candidates.query.vector is not None
        else None,
        [candidates.texts.get(key, "") for key in keys] if "texts" in reranker.needs else None,
        candidates.query.liked.vectors if candidates.query.liked else None,
        {**candidates.beside, **candidates.lists},
        [candidates.metadata.get(key, {}) for key in keys],
        candidates.index_terms,
    )
    with plugins.answerable("rerankers", reranker.name.partition("@")[0]):
        result = reranker.rerank(request)
        keep, shares = result.keep, result.shares
        sound = len(shares) == len(ids) and math.isfinite(sum(shares) + keep) and keep >= 0
    if not sound:
        hint = "Use --rerank none or rnn."
        raise UsageError(f"The reranker {reranker.name!r} did not give a finite number for each of {len(ids)} candidates.", hint)
    totals = [keep * score + share for score, share in zip(scores, shares, strict=True)]
    best = sorted(range(len(head)), key=lambda row: -totals[row])  # documents with equal scores keep their order
    keep_below = result.keep_below if result.keep_below is not None else (keep or 1.0)
    offset = 0.0
    if tail and best:
        # Scores that replace the earlier ones have another scale: leave room for the highest score that a tail can have.
        highest = tail[0][1] if keep else max(1.0, tail[0][1])
        offset = min(totals[best[-1]] - keep_below * highest, 0.0)
    stage = _Stage(reranker.name, {document: row for row, document in enumerate(ids)}, dict(tail), result, keep_below, offset)
    after = [(ids[row], totals[row]) for row in best]
    return [*after, *((document, keep_below * score + offset) for document, score in tail)], stage
