"""The position-based click model, fitted by expectation maximisation.

    P(click | query, document, position k) = examined(k) * attractive(query, document)

A click needs both: the user looks at the position, and the document attracts. Both factors are estimated from the log itself: documents that
were shown at several positions for the same query tell how much a position costs. (Chuklin, Markov, de Rijke: Click Models for Web Search,
2015, section 3.2 and algorithm of 4.2.)

The rate of a document says how well it does over all queries: its clicks (or conversions), compared with the number that its positions make likely:

    rate = (events + 1) / (expected + 1),   expected = sum, over the lists that showed the document, of the average events at its position

The rate is clicks over expected clicks (Zhang and Jones, Comparing Click Logs and Editorial Labels, 2007), with one event as prior: 1 for a
document that nobody was shown, above 1 for a document that does better than those that usually stand at its positions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave.support.normal_form import normalised

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.corpora.behaviour.ubi import Behaviour

#: Positions from this one on share one value: few people get there.
DEEPEST = 50
#: Passes of expectation maximisation at most, and the change of every position's value below which they end.
_PASSES, _STILL = 500, 1e-6
#: Pseudo-counts of a click and of no click for each pair, so that one impression is no certainty.
_PRIOR = 0.5
#: Clicks or conversions that every document is expected to have, and has, beside its own.
_EXPECTED_PRIOR = 1.0


@dataclass(frozen=True)
class Impressions:
    """Impressions and clicks, summed over sessions: one row for each query, document and position.

    Attributes:
        pair: int64 ``(n,)``, number of the pair of query and document, from 0.
        position: int64 ``(n,)``, position in the list, from 0.
        shown: float64 ``(n,)``, how often the document was shown at this position for this query.
        clicked: float64 ``(n,)``, in how many of these lists the document was clicked.
        converted: float64 ``(n,)``, in how many of these lists the document was bought, downloaded or the like.
    """

    pair: NDArray[np.int64]
    position: NDArray[np.int64]
    shown: NDArray[np.float64]
    clicked: NDArray[np.float64]
    converted: NDArray[np.float64]


@dataclass(frozen=True)
class PositionModel:
    """A position-based click model: the probabilities that were estimated from a log.

    Attributes:
        examined: float64 ``(positions,)``, the probability that a position is looked at, relative to the first one.
        attractive: float64 ``(pairs,)``, the probability that the document of a pair is clicked if its position is looked at.
        moved: Number of pairs of query and document that were shown at several positions; without such pairs a log cannot tell whether a click
            is due to the position or to the document.
    """

    examined: NDArray[np.float64]
    attractive: NDArray[np.float64]
    moved: int


def fit(impressions: Impressions) -> PositionModel:
    """Estimate how often each position is looked at (beginning with 1 / position) and how attractive each document is, by expectation maximisation."""
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
    """Return the model without correction: all positions are looked at equally often, so the attraction of a document is its clicks / impressions."""
    pairs = int(impressions.pair.max(initial=-1)) + 1
    seen = np.bincount(impressions.pair, weights=impressions.shown, minlength=pairs)
    clicks = np.bincount(impressions.pair, weights=impressions.clicked, minlength=pairs)
    positions = min(DEEPEST, int(impressions.position.max(initial=-1)) + 1)
    return PositionModel(np.ones(positions), clicks / np.maximum(seen, 1.0), 0)


def rates(behaviour: Behaviour, without: Collection[str] = ()) -> dict[str, tuple[float, float]]:
    """Return the rate of clicks and the rate of conversions of each document (see the module); documents that were never shown are left out.

    Args:
        behaviour: The log.
        without: Queries, in upper or lower case, whose impressions, clicks and conversions do not count.
    """
    excluded = {normalised(query) for query in without}
    counts = np.array([normalised(query) not in excluded for query, _ in behaviour.pairs], dtype=bool)
    numbers: dict[str, int] = {}
    documents = np.array([numbers.setdefault(document, len(numbers)) for _, document in behaviour.pairs], dtype=np.int64)
    log = behaviour.impressions
    used = counts[log.pair]
    document, position = documents[log.pair[used]], np.minimum(log.position[used], DEEPEST - 1)
    shown, lists = log.shown[used], np.bincount(position, weights=log.shown[used])
    columns = []
    for events in (log.clicked[used], log.converted[used]):
        average = np.bincount(position, weights=events) / np.maximum(lists, 1.0)
        actual = np.bincount(document, weights=events, minlength=len(numbers))
        expected = np.bincount(document, weights=shown * average[position], minlength=len(numbers))
        columns.append((actual + _EXPECTED_PRIOR) / (expected + _EXPECTED_PRIOR))
    return {name: (float(columns[0][at]), float(columns[1][at])) for name, at in numbers.items()}
