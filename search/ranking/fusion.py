"""One ranking out of several.

Every signal's scores become numbers from 0 to 1, and the fused score is their weighted mean: 1 for a document that is best
in every signal, 0 for one that no signal returned. A document that one signal did not return gets what it would have
scored there at most: that signal's lowest score, or its floor where the list is short.

The methods differ in how much each signal counts for a query. Min-max gives the best of a signal 1 however little it
stands out, so a signal whose candidates are all alike shouts as loud as one that has found the answer. ``adaptive``, the
default, weighs each signal by how far its candidates lie apart in that signal's own unit, squared (`Signal.spread`): for
words the part of the best score that the lowest lacks, less where even the best document has not half of the query's words; for
vectors, standard deviations of the similarity of two documents drawn at random, measured when the index is built. Neither
needs a judgement; docs/fusion.md has the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.records import SignalScore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from termweave.search.server_side import FusedList
    from termweave.signals import Signal

#: Cormack, Clarke and Büttcher's constant.
_RRF = 60


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of one signal.

    Attributes:
        scores: Document id -> the signal's score, best first.
        low: What a document that is not in the window scores at most.
        high: The best score.
        within: How many of the best are in the window.
        spread: How much the window tells apart, in a unit that signals share.
        passages: Document id -> number of the passage whose score this is, for documents indexed in passages.
    """

    scores: Mapping[str, float]
    low: float
    high: float
    within: int
    spread: float
    passages: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        pairs: Sequence[tuple[str, float]],
        window: int | None = None,
        signal: Signal | FusedList | None = None,
        passages: Mapping[str, int] | None = None,
        par: float | None = None,
    ) -> Ranked:
        """From (id, score) pairs in any order; ties by id. An id that something else wrote a second time counts by its best score.

        Args:
            pairs: The list.
            window: How many of the best count; None: all. What lies below counts 0, as if the signal had not returned it:
                so a fused score does not depend on how far somebody pages.
            signal: Whose scores they are: it knows what a document scores that it did not return, and the unit. None: the
                lowest score listed, and every list tells the same.
            passages: Document id -> the passage found.
            par: `Clause.par`.
        """
        best = sorted([(-score, document) for document, score in pairs])
        ordered = {document: -below for below, document in best}
        if len(ordered) < len(best):
            ordered = {}
            for below, document in best:
                ordered.setdefault(document, -below)
        values = list(ordered.values())[:window]
        if not values:
            return cls({}, 0.0, 0.0, 0, 0.0)
        low, high = values[-1], values[0]
        if signal is None:
            return cls(ordered, low, high, len(values), 1.0, passages or {})
        if signal.floor is not None and len(values) < (window or 0):
            low = min(low, signal.floor)
        return cls(ordered, low, high, len(values), signal.spread(low, high, par), passages or {})

    def normalised(self) -> list[float]:
        """Min-max into [0, 1], in the order of `scores`; 0 for what is not in the window, 1 in it where all its scores are equal."""
        low, extent = self.low, self.high - self.low
        inside = islice(self.scores.values(), self.within)
        values = [(score - low) / extent if extent > 0 else 1.0 for score in inside]
        return values + [0.0] * (len(self.scores) - self.within)


@dataclass(frozen=True, slots=True)
class Method:
    """A way to fuse.

    Attributes:
        name: As `--fusion` takes it.
        says: One sentence.
        source: Where it comes from.
        extent: How much a signal's list counts for this query, before the mode's weights.
        values: What each document of a list is worth, in [0, 1], in the order of the list.
    """

    name: str
    says: str
    source: str
    extent: Callable[[Ranked], float]
    values: Callable[[Ranked], list[float]] = Ranked.normalised


def _deviations(ranked: Ranked) -> float:
    """The window's extent in its standard deviations."""
    values = list(ranked.scores.values())[: ranked.within]
    mean = sum(values) / max(1, len(values))
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values)))
    return (ranked.high - ranked.low) / deviation if deviation > 0 else 0.0


METHODS = {
    method.name: method
    for method in (
        Method(
            "adaptive",
            "Min-max; each signal counts by how far its candidates lie apart in its own unit, squared.",
            "termweave.search.fusion",
            lambda ranked: ranked.spread**2,
        ),
        Method(
            "min-max",
            "The lowest candidate of a signal is 0, its best 1; signals count the same.",
            "Fox and Shaw, TREC-2, 1994 (CombSUM); Lee, SIGIR 1997 (normalisation)",
            lambda ranked: float(ranked.within > 0),
        ),
        Method(
            "z-score",
            "Scores in standard deviations of the list.",
            "Montague and Aslam, CIKM 2001",
            _deviations,
        ),
        Method(
            "rrf",
            f"Reciprocal rank fusion, 1 / ({_RRF} + rank): scores do not matter, only places.",
            "Cormack, Clarke and Büttcher, SIGIR 2009",
            lambda ranked: float(ranked.within > 0),
            lambda ranked: [
                (_RRF + 1) / (_RRF + rank) if rank <= ranked.within else 0.0 for rank in range(1, len(ranked.scores) + 1)
            ],
        ),
        Method(
            "sum",
            "The weighted sum of the scores as they are, for signals on one scale.",
            "Fox and Shaw, TREC-2, 1994",
            lambda ranked: ranked.high - ranked.low,
        ),
    )
}
DEFAULT = "adaptive"


@dataclass(frozen=True, slots=True)
class Fusion:
    """Several lists as one.

    Attributes:
        ranking: (id, fused score in [0, 1]), best first; ties by the best rank in any list, then by id.
        counts: Signal name -> how much it counts for this query; they sum to 1 unless every list is empty.
        lists: Signal name -> its candidates.
        values: Signal name -> what each of them is worth, in [0, 1].
    """

    ranking: list[tuple[str, float]]
    counts: Mapping[str, float]
    lists: Mapping[str, Ranked]
    values: Mapping[str, list[float]]

    def said(self, wanted: Collection[str], factor: float = 1.0) -> dict[str, dict[str, SignalScore]]:
        """What each signal said of the documents wanted, with its share of the fused score times `factor`."""
        said: dict[str, dict[str, SignalScore]] = {document: {} for document in wanted}
        for name, ranked in self.lists.items() if said else ():
            scale, values, scores = factor * self.counts[name], self.values[name], ranked.scores
            for place, document in enumerate(scores):
                if document in said:
                    said[document][name] = SignalScore(scores[document], place + 1, scale * values[place], values[place], scale)
        return said


def method(name: str) -> Method:
    """The fusion method of a name.

    Raises:
        UsageError: There is none.
    """
    if name not in METHODS:
        raise UsageError(f"There is no fusion method {name!r}.", f"Known: {', '.join(METHODS)}.")
    return METHODS[name]


def fuse(lists: Mapping[str, Ranked], weights: Mapping[str, float], by: str = DEFAULT) -> Fusion:
    """Fuse the lists of several signals.

    Args:
        lists: Signal name -> its candidates.
        weights: Signal name -> weight.
        by: Name of the method.

    Example:
        >>> words = Ranked.of([("a", 9.0), ("b", 3.0)])
        >>> vectors = Ranked.of([("b", 0.8), ("c", 0.5)])
        >>> fuse({"weights": words, "dense": vectors}, {"weights": 0.5, "dense": 0.5}).ranking
        [('a', 0.5), ('b', 0.5), ('c', 0.0)]
    """
    chosen = method(by)
    counts = {name: weights[name] * chosen.extent(ranked) for name, ranked in lists.items()}
    if not sum(counts.values()) > 0:  # no list tells anything apart
        counts = {name: weights[name] if ranked.within else 0.0 for name, ranked in lists.items()}
    total = sum(counts.values()) or 1.0
    counts = {name: count / total for name, count in counts.items()}
    fused: dict[str, tuple[float, int]] = {}  # the score below 0 and the best rank, which is what ties are broken by
    values = {name: chosen.values(ranked) for name, ranked in lists.items()}
    for name, ranked in lists.items():
        count = counts[name]
        for rank, (document, value) in enumerate(zip(ranked.scores, values[name], strict=True)):
            if document in fused:
                below, best = fused[document]
                fused[document] = below - count * value, best if best < rank else rank  # noqa: FURB136 - min() takes longer
            else:
                fused[document] = -count * value, rank
    ordered = sorted([(below, best, document) for document, (below, best) in fused.items()])
    return Fusion([(document, -below) for below, _, document in ordered], counts, lists, values)
