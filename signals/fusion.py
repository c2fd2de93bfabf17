"""Fuse the ranked lists of several signals into one ranking.

The scores of each signal are mapped to [0, 1], and the fused score is their weighted mean: 1 for a document that is best
in every signal, 0 for a document that no signal returned. A document that a signal did not return gets the highest score that it
can have there: the lowest score of the list, or the signal's floor if the list is short.

The methods differ in how much each signal counts for a query. Min-max gives the best document of a signal 1 even if all its
scores are nearly equal, so that a signal without a clear winner counts as much as one that has found the answer. ``adaptive``,
the default, weighs each signal by the square of its spread (`Signal.spread`), which every signal measures in its own unit. The spread
of a signal of words is the difference between the best and the lowest score as a share of the best, reduced where even the best
document does not hold all of the query's words. The spread of vectors is that difference in a unit of the model and the corpus
(`termweave.encoders.calibration`, `signals.dense`). No method needs judgements; docs/fusion.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.records import SignalScore

if TYPE_CHECKING:
    from termweave.contracts.signal import Clause, Signal

#: The constant k of reciprocal rank fusion, with the value of Cormack, Clarke and Büttcher.
_RRF = 60


class FusedList:
    """A stand-in for a signal where the server fuses: the server's one list, whose scores are used as they are."""

    name = "hybrid"
    needs = None
    floor = None

    def score(self, engine_score: float, clause: Clause) -> float:
        """The server's fused score, in [0, 1], unchanged."""
        return engine_score

    def spread(self, low: float, high: float, full_match_score: float | None = None) -> float:
        """Always 1, because the only list counts in full."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of one signal, ranked.

    Fusion counts only the best documents of the list, which are called its window.

    Attributes:
        scores: Document id -> the signal's score, best first.
        low: The highest score that a document outside the window can have; fusion maps it to 0.
        high: The best score; fusion maps it to 1.
        within: Number of documents in the window.
        spread: `Signal.spread` of the window: how far its scores lie apart, in a unit that all signals share.
        passages: Document id -> number of the passage that has this score, for documents indexed in passages.
    """

    scores: Mapping[str, float]
    low: float
    high: float
    within: int
    spread: float
    passages: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_scores(
        cls,
        pairs: Sequence[tuple[str, float]],
        window: int | None = None,
        signal: Signal | FusedList | None = None,
        passages: Mapping[str, int] | None = None,
        full_match_score: float | None = None,
    ) -> Ranked:
        """Rank one signal's documents by their scores, best first.

        Equal scores are ordered by id. If an id occurs twice (another program wrote the document a second time), its best score
        counts.

        Args:
            pairs: Document ids with scores, in any order.
            window: How many of the best documents count; None: all. Documents below the window count 0, as if the signal had not returned them, so
                that a fused score does not depend on the page that is shown.
            signal: The signal that gave the scores, which knows their floor (lowest possible score) and computes the spread. None: no floor, and a
                spread of 1.
            passages: Document id -> number of the passage that the signal returned; None: documents are not cut into passages.
            full_match_score: The score of an average document that holds each term of the query once (`Clause.full_match_score`); None: not known.
        """
        best = sorted([(-score, document) for document, score in pairs])
        ordered: dict[str, float] = {}
        for negative, document in best:
            ordered.setdefault(document, -negative)
        values = list(ordered.values())[:window]
        if not values:
            return cls({}, 0.0, 0.0, 0, 0.0)
        low, high = values[-1], values[0]
        if signal is not None and signal.floor is not None and len(values) < (window or 0):
            low = min(low, signal.floor)
        spread = 1.0 if signal is None else signal.spread(low, high, full_match_score)
        return cls(ordered, low, high, len(values), spread, passages or {})

    def normalised(self) -> list[float]:
        """Map the scores to [0, 1] by min-max, in the order of `scores`.

        Documents outside the window get 0. If all scores of the window are equal, its documents get 1.
        """
        low, extent = self.low, self.high - self.low
        inside = islice(self.scores.values(), self.within)
        values = [(score - low) / extent if extent > 0 else 1.0 for score in inside]
        return values + [0.0] * (len(self.scores) - self.within)


@dataclass(frozen=True, slots=True)
class FusionMethod:
    """A method that fuses ranked lists.

    Attributes:
        name: The name by which a mode names the method, as in ``hybrid@rrf``.
        extent: Computes how much a signal's list counts for this query, before the weights of the mode are applied.
        values: Computes a value in [0, 1] for each document of a list, in the order of the list.
    """

    name: str
    extent: Callable[[Ranked], float]
    values: Callable[[Ranked], list[float]] = Ranked.normalised


def _deviations(ranked: Ranked) -> float:
    """The difference between the best and the lowest score of the window, in standard deviations of the window."""
    values = list(ranked.scores.values())[: ranked.within]
    mean = sum(values) / max(1, len(values))
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values)))
    return (ranked.high - ranked.low) / deviation if deviation > 0 else 0.0


def _reciprocal_ranks(ranked: Ranked) -> list[float]:
    """The reciprocal rank of each document, 61 / (60 + rank), so that the best document has 1; 0 outside the window."""
    return [(_RRF + 1) / (_RRF + rank) if rank <= ranked.within else 0.0 for rank in range(1, len(ranked.scores) + 1)]


METHODS = {
    method.name: method
    for method in (
        # Min-max; each signal counts by the square of its spread, which it measures in its own unit.
        FusionMethod("adaptive", lambda ranked: ranked.spread**2),
        # The lowest candidate of a signal gets 0 and its best 1; all signals count the same. Fox and Shaw, TREC-2, 1994 (CombSUM); Lee, SIGIR
        # 1997 (normalisation).
        FusionMethod("min-max", lambda ranked: float(ranked.within > 0)),
        # Scores are measured in standard deviations of the list. Montague and Aslam, CIKM 2001.
        FusionMethod("z-score", _deviations),
        # Reciprocal rank fusion: only ranks count, not scores. Cormack, Clarke and Büttcher, SIGIR 2009.
        FusionMethod("rrf", lambda ranked: float(ranked.within > 0), _reciprocal_ranks),
        # The weighted sum of the unchanged scores, for signals on the same scale. Fox and Shaw, TREC-2, 1994.
        FusionMethod("sum", lambda ranked: ranked.high - ranked.low),
    )
}
DEFAULT = "adaptive"


@dataclass(frozen=True, slots=True)
class Fusion:
    """The fused ranking, and how much each signal contributed to it.

    Attributes:
        ranking: Pairs of document id and fused score in [0, 1], best first. Equal scores are ordered by the best rank in any list, then by id.
        counts: Signal name -> how much the signal counts for this query; the numbers sum to 1 unless every list is empty.
        lists: Signal name -> the signal's ranked candidates.
        values: Signal name -> the value in [0, 1] of each of its candidates, in the order of the list.
    """

    ranking: list[tuple[str, float]]
    counts: Mapping[str, float]
    lists: Mapping[str, Ranked]
    values: Mapping[str, list[float]]

    def signal_scores(self, documents: Collection[str], factor: float = 1.0) -> dict[str, dict[str, SignalScore]]:
        """For each of these documents: signal name -> the signal's score of it, with the signal's share of the fused score times `factor`."""
        collected: dict[str, dict[str, SignalScore]] = {document: {} for document in documents}
        for name, ranked in self.lists.items() if collected else ():
            scale, values, scores = factor * self.counts[name], self.values[name], ranked.scores
            for place, document in enumerate(scores):
                if document in collected:
                    value = values[place]
                    collected[document][name] = SignalScore(scores[document], place + 1, scale * value, value, scale)
        return collected


def method(name: str) -> FusionMethod:
    """Return the fusion method of this name.

    Raises:
        UsageError: No fusion method has this name.
    """
    if name not in METHODS:
        raise UsageError(f"There is no fusion method {name!r}.", f"Known: {', '.join(METHODS)}.")
    return METHODS[name]


def fuse(lists: Mapping[str, Ranked], weights: Mapping[str, float], by: str = DEFAULT) -> Fusion:
    """Fuse the lists of several signals.

    Args:
        lists: Signal name -> the signal's ranked candidates.
        weights: Signal name -> weight of the signal, as the mode says.
        by: Name of the fusion method.

    Example:
        >>> words = Ranked.from_scores([("a", 9.0), ("b", 3.0)])
        >>> vectors = Ranked.from_scores([("b", 0.8), ("c", 0.5)])
        >>> fuse({"weights": words, "dense": vectors}, {"weights": 0.5, "dense": 0.5}).ranking
        [('a', 0.5), ('b', 0.5), ('c', 0.0)]
    """
    chosen = method(by)
    counts = {name: weights[name] * chosen.extent(ranked) for name, ranked in lists.items()}
    if not sum(counts.values()) > 0:  # every spread is 0: all lists with documents count the same
        counts = {name: weights[name] if ranked.within else 0.0 for name, ranked in lists.items()}
    total = sum(counts.values()) or 1.0
    counts = {name: count / total for name, count in counts.items()}
    fused: dict[str, tuple[float, int]] = {}  # the negative score, and the best rank, which breaks ties
    values = {name: chosen.values(ranked) for name, ranked in lists.items()}
    for name, ranked in lists.items():
        count = counts[name]
        for rank, (document, value) in enumerate(zip(ranked.scores, values[name], strict=True)):
            if document in fused:
                negative, best = fused[document]
                fused[document] = negative - count * value, best if best < rank else rank  # noqa: FURB136 - min() takes longer
            else:
                fused[document] = -count * value, rank
    ordered = sorted([(negative, best, document) for document, (negative, best) in fused.items()])
    return Fusion([(document, -negative) for negative, _, document in ordered], counts, lists, values)
