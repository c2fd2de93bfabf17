"""Gates: what has to hold before an index goes live, or a pipeline goes on.

``nDCG@10>=0.4``            the mean is at least that
``MRR@10 within .01 of RUN``  the lower end of the 95 % interval of the paired difference to a saved run is above -.01: too few
                            queries widen the interval, so weakness of the data never opens the gate

Either may name its system: ``hybrid+rNN:nDCG@10>=0.4``; without one the default search is meant: the adopted profile, else hybrid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.evaluation import judgements, measures, runs
from termweave.evaluation.measures import LEADING, per_query
from termweave.evaluation.wording import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment
    from termweave.records import Qrels, Run

_NUMBER = r"(\d*\.?\d+)"
_GATE = re.compile(rf"(?:(?P<system>[^>]+?):)?(?P<measure>\w+@\d+)\s*(?:>=\s*{_NUMBER}|within\s+{_NUMBER}\s+of\s+(?P<run>\S.*))")
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

    def told(self, gate: str) -> dict[str, Any]:
        """As JSON says it, beside the text of the gate."""
        return {"gate": gate, "met": self.met, "reason": self.reason}


def parse(text: str) -> Gate:
    """Read a requirement.

    Raises:
        UsageError: It is none, or of a measure that there is not.

    Example:
        >>> parse("nDCG@10>=.4").least
        0.4
    """
    found = _GATE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is not a requirement.", "Write 'nDCG@10>=0.4', or 'MRR@10 within .01 of RUN' with RUN a TREC file."
        )
    _, measure, least, margin, run = found.groups()
    measures.check(measure)
    if float(least or margin or 0) > 1:
        raise UsageError(f"{text!r} can never tell anything: {measure} lies between 0 and 1.", "Write .4 for 40 %.")
    return Gate(
        text=text,
        system=found["system"],
        measure=measure,
        least=float(least) if least else None,
        margin=float(margin) if margin else None,
        run=Path(run) if run else None,
    )


def readable(required: Sequence[Gate], asked: Sequence[str], qrels: Qrels) -> None:
    """See, before the work, that the saved runs can be compared with.

    Args:
        required: The gates.
        asked: Ids of the queries.
        qrels: Their judgements.

    Raises:
        UsageError: One cannot be read, or is of another data set.
    """
    for gate in required:
        if gate.run is not None:
            _saved(gate.run, asked, qrels)


def known(required: Sequence[Gate], names: Sequence[str], default: str | None) -> None:
    """See, before the work, that the table will have what the gates look at.

    Args:
        required: The gates.
        names: Systems of the table.
        default: The one that gates without a name look at.

    Raises:
        UsageError: It will not.
    """
    for gate in required:
        _system(gate, names, default)


def check(gate: Gate, experiment: Experiment, dataset: Dataset) -> Verdict:
    """Hold a requirement against what an evaluation found.

    Raises:
        UsageError: The system is not known, or the run cannot be read.
    """
    import numpy as np  # noqa: PLC0415 - `--help` compares nothing

    system = _system(gate, list(experiment.runs), experiment.default)
    mine = _values(experiment.runs[system], experiment, dataset, gate.measure)
    if gate.least is not None:
        mean = float(mine.mean())
        sign = "reaches" if mean >= gate.least else "does not reach"
        told = f"{system}: {gate.measure} of {mean:.4f} {sign} {gate.least:g} ({queries(len(mine))})"
        return Verdict(mean >= gate.least, told)
    assert gate.run is not None
    assert gate.margin is not None
    saved, absent = _saved(gate.run, experiment.queries, dataset.qrels())
    # Where the saved run found nothing whatever we find would be a gain: it counts as none, so that absence opens no gate.
    difference = np.where(absent, 0.0, mine - _values(saved, experiment, dataset, gate.measure))
    return _within(system, gate.measure, difference, gate.margin, str(gate.run))


def _system(gate: Gate, names: Sequence[str], default: str | None) -> str:
    """Which system of the table a gate looks at."""
    if gate.system is None and default is None:
        raise UsageError(
            f"{gate.text!r} names no row of the table, and the default search is none of them.",
            f"Name one: '{names[0]}:{gate.text}'. There are: {', '.join(names)}.",
        )
    system = gate.system or default
    assert system is not None
    if system not in names:
        raise UsageError(f"There is no system {system!r} in the table.", f"There are: {', '.join(names)}.")
    return system


def _saved(path: Path, asked: Sequence[str], qrels: Qrels) -> tuple[Run, NDArray[np.bool_]]:
    """A saved run, and which of the queries it says nothing of; a run file cannot hold a query without results.

    Raises:
        UsageError: It cannot be read, or so many are absent, or so little is judged, that it must be of another data set.
    """
    import numpy as np  # noqa: PLC0415

    saved = runs.read(path)
    absent = np.array([query not in saved.scores for query in asked])
    if absent.mean() > _MOST_ABSENT:
        raise UsageError(
            f"The run {path} has nothing for {absent.sum():,} of {queries(len(absent))}, {asked[int(absent.argmax())]!r} for one.",
            "Compare with a run of the same data set and split.",
        )
    judgements.of_this_corpus(replace(saved, name=str(path)), asked, qrels)
    return saved, absent


def _values(run: Run, experiment: Experiment, dataset: Dataset, measure: str) -> NDArray[np.float64]:
    """The measure of every query of the experiment."""
    asked, relevant_from = experiment.queries, dataset.relevant_from
    return per_query(run, dataset.qrels(), asked, relevant_from=relevant_from, measures=[measure])[measure]


def compare(experiment: Experiment, before: Experiment, dataset: Dataset, margin: float, name: str) -> Verdict:
    """Hold the default search against that of another index, by nDCG@10.

    Args:
        experiment: What is to pass.
        before: What the other index gave, on the same queries.
        dataset: Their judgements.
        margin: How much worse it may be.
        name: Of the other index.
    """
    mine, other = _searched(experiment), _searched(before)
    difference = _values(mine, experiment, dataset, LEADING) - _values(other, experiment, dataset, LEADING)
    return _within(mine.name, LEADING, difference, margin, name)


def _searched(experiment: Experiment) -> Run:
    """What the default search found; the default table has it."""
    assert experiment.default is not None
    return experiment.runs[experiment.default]


def _within(system: str, measure: str, difference: NDArray[np.float64], margin: float, against: str) -> Verdict:
    if len(difference) < _FEWEST:
        return Verdict(
            met=False,
            reason=f"{system}: {measure}: {queries(len(difference))} {'is' if len(difference) == 1 else 'are'} too few to say anything",
        )
    low, high = interval(difference)
    met = low > -margin
    told = f"{difference.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}"
    within = "within" if met else "not surely within"
    return Verdict(met, f"{system}: {measure} against {against}: {told}: {within} {margin:g} ({queries(len(difference))})")


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
