"""A minimum score: a final score that hits need, and scores of signals that a document needs in at least one of them.

The final score of several signals is relative: the best candidate of a query gets nearly 1, also where nothing fits. The scores of one signal
can be compared between queries, so that ``dense:0.3`` leaves out what only vectors found, and found far away.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.candidates import Candidates

_HINT = "Write 0.3 for the final score, dense:0.3 for a signal, or both: 0.1,dense:0.3."
_ENTRY = re.compile(r"(?:(\w+):)?\s*(\S+)")


@dataclass(frozen=True)
class MinimumScore:
    """The scores that a hit needs.

    Attributes:
        final: The lowest final score.
        signals: Signal name -> the lowest score. A document is kept if one of the signals that found it reaches its own; a signal
            without an entry always does.
    """

    final: float = -math.inf
    signals: Mapping[str, float] = field(default_factory=dict)

    def check(self, asked: Collection[str]) -> None:
        """Refuse signals that a search does not ask.

        Raises:
            UsageError: There is one.
        """
        if unknown := [name for name in self.signals if name not in asked]:
            raise UsageError(
                f"The minimum score names {unknown[0]!r}, and the search asks {', '.join(asked)}.", "Name one of these signals."
            )

    def keeps(self, place: Place) -> bool:
        """Whether a document has the scores."""
        own = [(name, signal.score) for name, signal in place.signals.items() if signal.rank is not None]
        return place.score >= self.final and any(score >= self.signals.get(name, -math.inf) for name, score in own)

    def exhausts(self, ranked: Sequence[Place], candidates: Candidates, depth: int) -> bool:
        """Whether a search for more than `depth` documents of each signal finds nothing else that is kept.

        Args:
            ranked: The ranked candidates, best first.
            candidates: The candidates.
            depth: How many documents each signal was asked for.
        """
        return bool(ranked and ranked[-1].score < self.final) or all(
            len(ranked.scores) < depth or min(ranked.scores.values()) < self.signals.get(name, -math.inf)
            for name, ranked in candidates.lists.items()
        )


def parse(value: Any) -> Any:
    """Return the `MinimumScore` that a number or a text means; None and a `MinimumScore` are returned as they are.

    Raises:
        UsageError: The value is not a minimum score.
    """
    if value is None or isinstance(value, MinimumScore):
        return value
    if not isinstance(value, bool) and isinstance(value, Real):
        value = str(value)
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a minimum score.", _HINT)
    final = -math.inf
    signals: dict[str, float] = {}
    for entry in value.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        try:
            score = float(match[2]) if match else math.nan
        except ValueError:
            score = math.nan
        if match is None or math.isnan(score) or (match[1] or "") in {*signals, *([""] if final > -math.inf else [])}:
            raise UsageError(f"{value!r} is not a minimum score.", _HINT)
        if match[1]:
            signals[match[1]] = score
        else:
            final = score
    return MinimumScore(final, signals)
