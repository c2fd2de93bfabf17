"""One ranking out of several: weighted sums of min-max normalised scores.

A document that a signal did not return gets that signal's lowest normalised score, 0. Equal sums are ordered by id, so the
same lists always give the same ranking.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of one signal.

    Attributes:
        scores: Document id -> the signal's score, best first.
        low: Lowest score of the window that normalisation looks at.
        high: Highest.
        passages: Document id -> number of the passage whose score this is, for documents indexed in passages.
    """

    scores: Mapping[str, float]
    low: float
    high: float
    passages: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[str, float]], window: int | None = None, passages: Mapping[str, int] | None = None
    ) -> Ranked:
        """From (id, score) pairs in any order; ties by id.

        Args:
            pairs: The list.
            window: How many of the best the normalisation looks at; None: all. What lies below counts 0, as if the signal
                had not returned it: so a fused score does not depend on how far somebody pages.
            passages: Document id -> the passage found.
        """
        ordered = dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
        values = list(ordered.values())[:window]
        return cls(ordered, values[-1], values[0], passages or {}) if values else cls({}, 0.0, 0.0)

    def normalised(self, score: float) -> float:
        """Min-max into [0, 1]; where all scores are equal each of them is 1."""
        spread = self.high - self.low
        if spread <= 0:
            return float(score >= self.low)
        return max(0.0, (score - self.low) / spread)


def fuse(lists: Mapping[str, Ranked], weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """Fuse the lists of several signals.

    Args:
        lists: Signal name -> its candidates.
        weights: Signal name -> weight.

    Returns:
        (id, fused score in [0, 1]), best first; ties by the best rank in any list, then by id.

    Example:
        >>> words = Ranked.of([("a", 9.0), ("b", 3.0)])
        >>> vectors = Ranked.of([("b", 0.8), ("c", 0.5)])
        >>> fuse({"weights": words, "dense": vectors}, {"weights": 0.5, "dense": 0.5})
        [('a', 0.5), ('b', 0.5), ('c', 0.0)]
    """
    fused: dict[str, float] = {}
    best: dict[str, int] = {}
    for name, ranked in lists.items():
        for rank, (document, score) in enumerate(ranked.scores.items()):
            fused[document] = fused.get(document, 0.0) + weights[name] * ranked.normalised(score)
            best[document] = min(rank, best.get(document, rank))
    return sorted(fused.items(), key=lambda pair: (-pair[1], best[pair[0]], pair[0]))
