"""The position-based click model, fitted by expectation maximisation.

    P(click | query, document, position k) = examined(k) * attractive(query, document)

A click needs both: the user looks at the position, and the document attracts. Both factors are estimated from the log itself: documents that
were shown at several positions for the same query tell how much a position costs. (Chuklin, Markov, de Rijke: Click Models for Web Search,
2015, section 3.2 and algorithm of 4.2.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Positions from this one on share one value: few people get there.
DEEPEST = 50
#: Passes of expectation maximisation at most, and the change of every position's value below which they end.
_PASSES, _STILL = 500, 1e-6
#: Pseudo-counts of a click and of no click for each pair, so that one impression is no certainty.
_PRIOR = 0.5


@dataclass(frozen=True)
class Impressions:
    """What was shown and clicked, summed over sessions: one row for each query, document and position.

    Attributes:
        pair: int64 ``(n,)``, number of the pair of query and document, from 0.
        position: int64 ``(n,)``, position in the list, from 0.
        shown: float64 ``(n,)``, how often the document was shown there.
        clicked: float64 ``(n,)``, in how many of these lists it was clicked.
        converted: float64 ``(n,)``, in how many of these lists it was bought, downloaded or the like.
    """

    pair: NDArray[np.int64]
    position: NDArray[np.int64]
    shown: NDArray[np.float64]
    clicked: NDArray[np.float64]
    converted: NDArray[np.float64]


@dataclass(frozen=True)
class PositionModel:
    """A fitted model.

    Attributes:
        examined: float64 ``(positions,)``, the probability that a position is looked at, relative to the first one.
        attractive: float64 ``(pairs,)``, the probability that a document is clicked if it is looked at.
        moved: Number of pairs that were shown at several positions: without any, nothing can tell position from attraction.
    """

    examined: NDArray[np.float64]
    attractive: NDArray[np.float64]
    moved: int


def fit(impressions: Impressions) -> PositionModel:
    """Estimate both factors by expectation maximisation, beginning with 1 / position."""
    pair, shown, clicked = impressions.pair, impressions.shown, impressions.clicked
    position = np.minimum(impressions.position, DEEPEST - 1)
    pairs, positions = int(pair.max(initial=-1)) + 1, int(position.max(initial=-1)) + 1
    seen = np.bincount(pair, weights=shown, minlength=pairs)
    lists = np.bincount(position, weights=shown, minlength=positions)
    examined = 1.0 / np.arange(1, positions + 1)
    attractive = np.full(pairs, 0.5)
    missed = shown - clicked
    for _ in range(_PASSES):
        looked, drawn = examined[position], attractive[pair]
        neither = np.maximum(1.0 - looked * drawn, 1e-12)
        attracted = clicked + missed * drawn * (1.0 - looked) / neither
        looked_at = clicked + missed * looked * (1.0 - drawn) / neither
        attractive = (np.bincount(pair, weights=attracted, minlength=pairs) + _PRIOR) / (seen + 2 * _PRIOR)
        before = examined
        examined = np.bincount(position, weights=looked_at, minlength=positions) / np.maximum(lists, 1.0)
        examined = np.clip(examined, 1e-3, 1.0)
        if np.abs(examined - before).max(initial=0.0) < _STILL:
            break
    top = examined[0] if positions else 1.0
    several = np.bincount(np.unique(np.stack([pair, position]), axis=1)[0], minlength=pairs) if len(pair) else np.zeros(0)
    return PositionModel(examined / top, np.clip(attractive * top, 0.0, 1.0), int((several > 1).sum()))


def raw(impressions: Impressions) -> PositionModel:
    """The model that believes every click and every missing click: all positions count the same."""
    pairs = int(impressions.pair.max(initial=-1)) + 1
    seen = np.bincount(impressions.pair, weights=impressions.shown, minlength=pairs)
    clicks = np.bincount(impressions.pair, weights=impressions.clicked, minlength=pairs)
    positions = min(DEEPEST, int(impressions.position.max(initial=-1)) + 1)
    return PositionModel(np.ones(positions), clicks / np.maximum(seen, 1.0), 0)
