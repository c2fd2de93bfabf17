"""The agreement of judges: Cohen's kappa of each pair, Fleiss' kappa of all, and Krippendorff's alpha for ordinal grades.

The two kappas are computed in the few lines below, tested on worked examples: maintained libraries for them (scikit-learn, statsmodels) bring scipy and
pandas, some hundred megabytes, for two sums. Krippendorff's alpha with gaps and distances is more than that, and `krippendorff` is light.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from termweave.evaluation.book.store import GRADES, BookGrade
from termweave.support.extras import needed

if TYPE_CHECKING:
    #: (query, document) -> judge -> grade
    Items = Mapping[tuple[str, str], Mapping[str, int]]


@dataclass(frozen=True)
class JudgePair:
    """Cohen's kappa of two judges, on the `items` documents that both graded; None: it is not defined, because all grades are the same."""

    first: str
    second: str
    items: int
    kappa: float | None


@dataclass(frozen=True)
class JudgeAgreement:
    """The agreement of judges on the documents that they graded.

    Attributes:
        judges: Name of a judge -> number of documents that the judge graded.
        shared: Number of documents with at least two grades.
        pairs: Each pair of judges with a document in common.
        complete: Number of documents that all judges graded, which Fleiss' kappa counts.
        fleiss: Fleiss' kappa; None: there are fewer than two judges, or kappa is not defined.
        alpha: Krippendorff's alpha with the ordinal distance; None: alpha is not defined.
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
    counts = Counter(judge for graded in items.values() for judge in graded)
    judges = sorted(counts)
    complete = [graded for graded in items.values() if len(graded) == len(judges)] if len(judges) > 1 else []
    both = {
        (one, other): [(graded[one], graded[other]) for graded in items.values() if one in graded and other in graded]
        for one, other in combinations(judges, 2)
    }
    return JudgeAgreement(
        judges={judge: counts[judge] for judge in judges},
        shared=sum(len(graded) > 1 for graded in items.values()),
        pairs=tuple(_pair(*two, grades) for two, grades in both.items() if grades),
        complete=len(complete),
        fleiss=_fleiss(complete, len(judges)),
        alpha=_alpha(items, judges),
    )


def _pair(first: str, second: str, both: Sequence[tuple[int, int]]) -> JudgePair:
    """Compute Cohen's kappa (1960), (observed - expected) / (1 - expected), from the two grades of each document that both judges graded."""
    observed = sum(one == other for one, other in both) / len(both)
    left, right = (Counter(side) for side in zip(*both, strict=True))
    expected = sum(left[grade] * right[grade] for grade in GRADES) / len(both) ** 2
    return JudgePair(first, second, len(both), _corrected(observed, expected))


def _fleiss(complete: Sequence[Mapping[str, int]], judges: int) -> float | None:
    """Compute Fleiss' kappa (1971): as Cohen's, with the agreement of all pairs of judges and the grades of all judges together."""
    if not complete:
        return None
    tables = [Counter(graded.values()) for graded in complete]
    observed = sum(count * (count - 1) for table in tables for count in table.values()) / (len(tables) * judges * (judges - 1))
    total = sum(tables, Counter())
    expected = sum((count / (len(tables) * judges)) ** 2 for count in total.values())
    return _corrected(observed, expected)


def _corrected(observed: float, expected: float) -> float | None:
    return (observed - expected) / (1 - expected) if expected < 1 else None


def _alpha(items: Items, judges: Sequence[str]) -> float | None:
    """Compute Krippendorff's alpha by the package `krippendorff`; documents with one grade do not count; None: alpha is not defined."""
    shared = [graded for graded in items.values() if len(graded) > 1]
    if len({grade for graded in shared for grade in graded.values()}) < 2:
        return None
    krippendorff = needed("krippendorff", "ui", "The package 'krippendorff'")
    table = [[graded.get(judge, float("nan")) for graded in shared] for judge in judges]
    return float(krippendorff.alpha(reliability_data=table, level_of_measurement="ordinal"))
