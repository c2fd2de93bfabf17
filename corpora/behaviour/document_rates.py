"""How well a document does over all queries: its clicks and conversions, compared with those that its positions make likely.

    rate = (events + 1) / (expected + 1),   expected = sum over the lists that showed it of the average events at its position

That is clicks over expected clicks (Zhang and Jones, Comparing Click Logs and Editorial Labels, 2007), with one event as prior: 1 for a document
that nobody was shown, above 1 for one that does better than what usually stands at its positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.corpora.behaviour.click_model import DEEPEST
from termweave.support.messages import normalised

if TYPE_CHECKING:
    from collections.abc import Collection

    from termweave.corpora.behaviour.ubi import Behaviour

#: Clicks or conversions that every document is expected to have, and has, beside its own.
_PRIOR = 1.0


def rates(behaviour: Behaviour, without: Collection[str] = ()) -> dict[str, tuple[float, float]]:
    """Document -> its rate of clicks and of conversions; documents that were never shown are left out.

    Args:
        behaviour: The log.
        without: Queries that do not count, in upper or lower case: neither the documents' events nor the averages come from them.
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
        actual, expected = (
            np.bincount(document, weights=values, minlength=len(numbers)) for values in (events, shown * average[position])
        )
        columns.append((actual + _PRIOR) / (expected + _PRIOR))
    return {name: (float(columns[0][at]), float(columns[1][at])) for name, at in numbers.items()}
