"""How far judges agree: Cohen's kappa of each pair, Fleiss' kappa of all, and Krippendorff's alpha for ordinal grades.

The two kappas are the few lines below, tested on worked examples: their maintained libraries (scikit-learn, statsmodels) bring scipy and
pandas, some hundred megabytes, for two sums. Krippendorff's alpha with gaps and distances is more than that, and `krippendorff` is light.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.evaluation.book.store import GRADES
from termweave.support import extras

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.evaluation.book.store import BookGrade

    #: (query, document) -> judge -> grade
    Items = Mapping[tuple[str, str], Mapping[str, int]]


@dataclass(frozen=True)
class JudgePair:
    """Cohen's kappa of two judges; None if it is not defined, because both gave all documents the same grade."""

    first: str
    second: str
    items: int
    kappa: float | None


@dataclass(frozen=True)
class JudgeAgreement:
    """How far judges agree.

    Attributes:
        judges: Name of a judge -> number of documents that the judge graded.
        shared: Number of documents with at least two grades.
        pairs: Each pair of judges with a document in common.
        complete: Number of documents that all judges graded, which Fleiss' kappa counts.
        fleiss: Fleiss' kappa; None for fewer than two judges or if it is not defined.
        alpha: Krippendorff's alpha with the ordinal distance; None if it is not defined.
    """

    judges: Mapping[str, int]
    shared: int
    pairs: tuple[JudgePair, ...]
    complete: int
    fleiss: float | None
    alpha: float | None


def measure(grades: Sequence[BookGrade]) -> JudgeAgreement:
    """Compute the agreement of grades; skipped documents do not count."""
    items: dict[tuple[str, str], dict[str, int]] = {}
    for each in grades:
        if each.grade is not None:
            items.setdefault((each.query, each.document), {})[each.judge] = each.grade
    counts = Counter(judge for given in items.values() for judge in given)
    judges = sorted(counts)
    complete = [given for given in items.values() if len(given) == len(judges)] if len(judges) > 1 else []
    both = {
        (one, other): [(given[one], given[other]) for given in items.values() if one in given and other in given]
        for one, other in combinations(judges, 2)
    }
    return JudgeAgreement(
        judges={judge: counts[judge] for judge in judges},
        shared=sum(len(given) > 1 for given in items.values()),
        pairs=tuple(_pair(*two, grades) for two, grades in both.items() if grades),
        complete=len(complete),
        fleiss=_fleiss(complete, len(judges)),
        alpha=_alpha(items, judges),
    )


def _pair(first: str, second: str, both: Sequence[tuple[int, int]]) -> JudgePair:
    """Cohen (1960): (observed - expected) / (1 - expected), of the grades that both gave."""
    observed = sum(one == other for one, other in both) / len(both)
    left, right = (Counter(side) for side in zip(*both, strict=True))
    expected = sum(left[grade] * right[grade] for grade in GRADES) / len(both) ** 2
    return JudgePair(first, second, len(both), _corrected(observed, expected))


def _fleiss(complete: Sequence[Mapping[str, int]], judges: int) -> float | None:
    """Fleiss (1971): as Cohen's, with the agreement of all pairs of judges and the grades of all judges together."""
    if not complete:
        return None
    tables = [Counter(given.values()) for given in complete]
    observed = sum(count * (count - 1) for table in tables for count in table.values()) / (len(tables) * judges * (judges - 1))
    total = sum(tables, Counter())
    expected = sum((count / (len(tables) * judges)) ** 2 for count in total.values())
    return _corrected(observed, expected)


def _corrected(observed: float, expected: float) -> float | None:
    return (observed - expected) / (1 - expected) if expected < 1 else None


def _alpha(items: Items, judges: Sequence[str]) -> float | None:
    """Krippendorff's alpha by the package of that name; documents with one grade do not count."""
    shared = [given for given in items.values() if len(given) > 1]
    if len({grade for given in shared for grade in given.values()}) < 2:
        return None
    try:
        import krippendorff  # noqa: PLC0415 - the extra `ui`, and numpy, only where somebody asks
    except ImportError:
        raise UsageError("The package 'krippendorff' is not installed.", f"Install it with: {extras.install('ui')}") from None
    table = [[given.get(judge, float("nan")) for given in shared] for judge in judges]
    return float(krippendorff.alpha(reliability_data=table, level_of_measurement="ordinal"))
