"""Gates: what has to hold before an index goes live, or a pipeline goes on.

``nDCG@10>=0.4``            the mean is at least that
``MRR@10 within .01 of RUN``  the lower end of the 95 % interval of the paired difference to a saved run is above -.01: too few
                            queries widen the interval, so weakness of the data never opens the gate

Either may name its system: ``hybrid+rNN:nDCG@10>=0.4``; without one the default search, hybrid, is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.evaluation import runs
from termweave.evaluation.measures import per_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment
    from termweave.records import Run

_NUMBER = r"(\d*\.?\d+)"
_GATE = re.compile(rf"(?:(?P<system>[^:>]+):)?(?P<measure>\w+@\d+)\s*(?:>=\s*{_NUMBER}|within\s+{_NUMBER}\s+of\s+(?P<run>\S.*))")
#: Fewer paired queries prove nothing.
_FEWEST = 5
#: Share of the queries that a saved run may have nothing for.
_MOST_ABSENT = 0.05


@dataclass(frozen=True, slots=True)
class Gate:
    """One requirement.

    Attributes:
        text: As it was written.
        system: Whose figure; None: the default search.
        measure: Which.
        least: The mean to reach, for ``>=``.
        margin: How much worse it may be, for ``within``.
        run: Than what.
    """

    text: str
    system: str | None
    measure: str
    least: float | None
    margin: float | None
    run: Path | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a gate is met, and a sentence that says why."""

    met: bool
    reason: str


def parse(text: str) -> Gate:
    """Read a requirement.

    Raises:
        UsageError: It is none.

    Example:
        >>> parse("nDCG@10>=.4").least
        0.4
    """
    found = _GATE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is not a requirement.", "Write 'nDCG@10>=0.4', or 'MRR@10 within .01 of RUN' with RUN a TREC file."
        )
    _, _, least, margin, run = found.groups()
    return Gate(
        text=text,
        system=found["system"],
        measure=found["measure"],
        least=float(least) if least else None,
        margin=float(margin) if margin else None,
        run=Path(run) if run else None,
    )


def check(gate: Gate, experiment: Experiment, dataset: Dataset) -> Verdict:
    """Hold a requirement against what an evaluation found.

    Raises:
        UsageError: The system or the measure is not known, or the run cannot be read.
    """
    system = gate.system or _default(experiment)
    import numpy as np  # noqa: PLC0415 - `--help` compares nothing

    if system not in experiment.runs:
        raise UsageError(f"There is no system {system!r} in the table.", f"There are: {', '.join(experiment.runs)}.")
    qrels = dataset.qrels()

    def values(run: Run) -> NDArray[np.float64]:
        found = per_query(run, qrels, experiment.queries, relevant_from=dataset.relevant_from, measures=[gate.measure])
        return found[gate.measure]

    mine = values(experiment.runs[system])
    if gate.least is not None:
        mean = float(mine.mean())
        sign = "reaches" if mean >= gate.least else "does not reach"
        return Verdict(mean >= gate.least, f"{system}: {gate.measure} of {mean:.4f} {sign} {gate.least:g} ({len(mine)} queries)")
    assert gate.run is not None
    assert gate.margin is not None
    saved = runs.read(gate.run)
    # A run file cannot hold a query without results, so a few may be absent; many are another data set.
    absent = np.array([query not in saved.scores for query in experiment.queries])
    if absent.mean() > _MOST_ABSENT:
        raise UsageError(
            f"The run {gate.run} has nothing for {absent.sum():,} of {len(absent):,} queries, "
            f"{experiment.queries[int(absent.argmax())]!r} for one.",
            "Compare with a run of the same data set and split.",
        )
    # Where the saved run found nothing whatever we find would be a gain: it counts as none, so that absence opens no gate.
    difference = np.where(absent, 0.0, mine - values(saved))
    return _within(system, gate.measure, difference, gate.margin, str(gate.run))


def compare(experiment: Experiment, before: Experiment, dataset: Dataset, margin: float, name: str) -> Verdict:
    """Hold the default search against that of another index, by nDCG@10.

    Args:
        experiment: What is to pass.
        before: What the other index gave, on the same queries.
        dataset: Their judgements.
        margin: How much worse it may be.
        name: Of the other index.
    """
    measure = "nDCG@10"

    def values(found: Experiment) -> NDArray[np.float64]:
        run = found.runs[_default(found)]
        queries = experiment.queries
        return per_query(run, dataset.qrels(), queries, relevant_from=dataset.relevant_from, measures=[measure])[measure]

    return _within(_default(experiment), measure, values(experiment) - values(before), margin, name)


def _within(system: str, measure: str, difference: NDArray[np.float64], margin: float, against: str) -> Verdict:
    if len(difference) < _FEWEST:
        return Verdict(met=False, reason=f"{system}: {measure}: {len(difference)} queries are too few to say anything")
    low, high = interval(difference)
    met = low > -margin
    told = f"{difference.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}"
    within = "within" if met else "not surely within"
    return Verdict(met, f"{system}: {measure} against {against}: {told}: {within} {margin:g} ({len(difference)} queries)")


def interval(difference: NDArray[np.float64]) -> tuple[float, float]:
    """95 % interval of the mean of paired differences ``(n,)``, n > 1: Student's t, wide where queries are few.

    The quantile is the Cornish-Fisher expansion around the normal one: within .5 % from four degrees of freedom.
    """
    z = 1.959964
    freedom = len(difference) - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    mean = float(difference.mean())
    half = t * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return mean - half, mean + half


def _default(experiment: Experiment) -> str:
    systems: Sequence[str] = list(experiment.runs)
    return "hybrid" if "hybrid" in systems else systems[-1]
