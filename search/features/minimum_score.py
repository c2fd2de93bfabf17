"""A minimum score, `--min-score 0.3`: the lowest final score of a hit, and lowest scores of signals, of which one must be reached.

The final score of several signals is relative: the best candidate of a query gets nearly 1, also where nothing fits. The scores of one signal
can be compared between queries, so that ``dense:0.3`` leaves out documents that only vectors found, with a score below 0.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.search.feature import Feature, Ranking, Report
from termweave.signals.fusion import FusedList
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.search.ranking.order import Place
    from termweave.search.retrieval.plan import Retrieval

_HINT = "Write 0.3 for the final score, dense:0.3 for a signal, or both: 0.1,dense:0.3."
_ENTRY = re.compile(r"(?:(\w+):)?\s*([+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?))", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class MinimumScore:
    """The lowest scores with which a document is kept.

    Attributes:
        final: The lowest final score; minus infinity: any.
        signals: Signal name -> the lowest score of this signal. A document is kept if it reaches the lowest score of at least one signal that found
            it; a signal without an entry keeps every document that it found.
    """

    final: float = -math.inf
    signals: Mapping[str, float] = field(default_factory=dict)

    def keeps(self, place: Place) -> bool:
        """Whether the scores of a document are high enough."""
        return place.score >= self.final and any(
            signal.score >= self.signals.get(name, -math.inf) for name, signal in place.signals.items() if signal.rank is not None
        )


def parse(value: Any) -> Any:
    """Turn a number, or a text such as "0.1,dense:0.3", into a `MinimumScore`; return anything else as it is.

    Raises:
        UsageError: The text is not a minimum score.
    """
    if not isinstance(value, bool) and isinstance(value, Real):
        value = str(value)
    if not isinstance(value, str):
        return value
    lowest: dict[str, float] = {}
    for entry in value.split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None or (name := match[1] or "") in lowest:
            raise UsageError(f"{value!r} is not a minimum score.", _HINT)
        lowest[name] = float(match[2])
    return MinimumScore(lowest.pop("", -math.inf), lowest)


@dataclass(frozen=True, kw_only=True)
class MinimumScoreOptions:
    """A minimum of the scores.

    Attributes:
        min_score: Leave out documents below this final score (0.3), or that no signal gives its score ("dense:0.3"): see
            `termweave.search.features.minimum_score`.
    """

    min_score: Annotated[
        str | float | MinimumScore | None,
        Setting(
            "Leave out documents below this final score: 0.3. The final score of several signals is relative to the best candidate; "
            "dense:0.3 leaves out documents that only dense found, with a score below 0.3. Or both: 0.1,dense:0.3.",
            "SCORE",
            control="Minimum score",
            example="dense:0.3",
            convert=parse,
        ),
    ] = None


class ScoreFloor(Feature[MinimumScoreOptions]):
    """Leaves out documents with too low scores, unless they are pinned."""

    @property
    def _minimum(self) -> MinimumScore:
        minimum: MinimumScore = parse(self.options.min_score)
        return minimum

    def plan(self, plan: Retrieval) -> Retrieval:
        """Check that each signal with a minimum score is searched."""
        lists = plan.signals if plan.server_fusion is None else [FusedList.name]
        if unknown := [name for name in self._minimum.signals if name not in lists]:
            message = f"The minimum score names the signal {unknown[0]!r}, but this search uses {', '.join(lists)}."
            raise UsageError(message, "Name a signal that the search uses.")
        return replace(plan, floor=True)

    def rank(self, ranking: Ranking) -> Ranking:
        """Leave out documents with too low scores."""
        minimum, pinned = self._minimum, ranking.pinned
        return replace(ranking, places=[each for each in ranking.places if each.id in pinned or minimum.keeps(each)])

    def enough(self, ranking: Ranking) -> bool:
        """Whether a deeper search could find only documents that are left out."""
        minimum, ranked = self._minimum, ranking.ranked
        return bool(ranked and ranked[-1].score < minimum.final) or all(
            len(each.scores) < ranking.plan.depth or min(each.scores.values()) < minimum.signals.get(name, -math.inf)
            for name, each in ranking.candidates.lists.items()
        )

    def remarks(self, report: Report) -> Iterator[str]:
        """Say that the minimum score leaves out all candidates."""
        if not report.ranked and report.last.ranked:
            yield f"The minimum score leaves out all {counted(len(report.last.ranked), 'candidate')} of the query."
