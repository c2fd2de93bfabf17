"""Gates: requirements that figures must meet before an index is published or a pipeline continues.

``nDCG@10>=0.4``              The mean is at least 0.4.
``MRR@10 within .01 of RUN``  The lower end of the 95 % interval of the paired difference to a saved run is at least -.01. With
                              few queries the interval is wide, so a gate is never met because there is little data. Queries without a
                              relevant document do not count: both have 0 there, which would hide a loss on the others.

A gate may name a system: ``hybrid+rNN:nDCG@10>=0.4``. Otherwise it is about the default search: the adopted profile, else hybrid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import UsageError
from termweave.evaluation import judgements, measures, runs
from termweave.evaluation.measures import LEADING, interval, per_query, queries
from termweave.search import self_matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment
    from termweave.records import Qrels, Run

_NUMBER = r"(\d*\.?\d+)"
_GATE = re.compile(rf"(?:(?P<system>.+?):)??(?P<measure>\w+@\d+)\s*(?:>=\s*{_NUMBER}|within\s+{_NUMBER}\s+of\s+(?P<run>\S.*))")
#: Fewest paired queries; with fewer, a comparison proves nothing.
_FEWEST = 5
#: Largest share of the queries for which a saved run may have no results.
_MOST_ABSENT = 0.05


@dataclass(frozen=True, slots=True)
class Gate:
    """One requirement.

    Attributes:
        text: The requirement as the user wrote it.
        system: The system that must meet it; None is the default search.
        measure: The measure, such as "nDCG@10".
        least: For ``>=``: the lowest mean that meets the gate.
        margin: For ``within``: how much worse than the saved run the system may be.
        run: For ``within``: the file of the saved run.
    """

    text: str
    system: str | None
    measure: str
    least: float | None
    margin: float | None
    run: Path | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a gate: its text, whether it is met, and a sentence that gives the reason."""

    gate: str
    met: bool
    reason: str


def parse(text: str) -> Gate:
    """Parse a requirement.

    Raises:
        UsageError: The text is not a requirement, or its measure is unknown.

    Example:
        >>> parse("nDCG@10>=.4").least
        0.4
    """
    match = _GATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a requirement.", "Write 'nDCG@10>=0.4' or 'MRR@10 within .01 of RUN' (a run file).")
    _, measure, least, margin, run = match.groups()
    measures.parse_measure(measure)
    least, margin = (float(each) if each else None for each in (least, margin))
    if (least or margin or 0) > 1:
        raise UsageError(f"{text!r} is always met or never met, because {measure} lies between 0 and 1.", "Write .4 for 40 %.")
    return Gate(text, match["system"], measure, least, margin, Path(run) if run else None)


def check_before(
    required: Sequence[Gate], names: Sequence[str], default: str | None, query_ids: Sequence[str], qrels: Qrels
) -> None:
    """Check the systems and the saved runs of gates before the evaluation starts.

    Args:
        required: The gates.
        names: Names of the systems in the table.
        default: The system of gates that do not name one.
        query_ids: Ids of the queries.
        qrels: Judgements of the queries.

    Raises:
        UsageError: A system is not in the table, or a run cannot be read, or belongs to another data set.
    """
    for gate in required:
        system_of(gate, names, default)
        if gate.run is not None:
            _saved(gate.run, query_ids, qrels)


def verdict(gate: Gate, experiment: Experiment, dataset: Dataset) -> Verdict:
    """Decide whether the results of an evaluation meet a requirement.

    Raises:
        UsageError: The system is unknown, or the saved run cannot be read.
    """
    system = system_of(gate, list(experiment.runs), experiment.default)
    mine = _values(experiment.runs[system], experiment, dataset, gate.measure)
    if gate.least is not None:
        mean = float(mine.mean())
        verb = "reaches" if mean >= gate.least else "does not reach"
        reason = f"{system}: {gate.measure} of {mean:.4f} {verb} {gate.least:g} ({queries(len(mine))})"
        return Verdict(gate.text, mean >= gate.least, reason)
    assert gate.run is not None
    saved, absent = _saved(gate.run, experiment.queries, dataset.qrels())
    # A query that is absent from the saved run counts as no difference; otherwise any result of ours would be a gain.
    difference = np.where(absent, 0.0, mine - _values(saved, experiment, dataset, gate.measure))
    return _margin_verdict(gate, system, experiment, dataset, difference, str(gate.run))


def system_of(gate: Gate, names: Sequence[str], default: str | None) -> str:
    """Return the name of the system in the table that a gate is about.

    Args:
        gate: The gate.
        names: Names of the systems in the table.
        default: The system of gates that do not name one.

    Raises:
        UsageError: The system is not in the table.
    """
    system = gate.system or default
    if system is None:
        message = f"The gate {gate.text!r} names no system, and the default search is not in the table."
        raise UsageError(message, f"Name a system: '{names[0]}:{gate.text}'. The table has: {', '.join(names)}.")
    if system not in names:
        raise UsageError(f"There is no system {system!r} in the table.", f"The table has: {', '.join(names)}.")
    return system


def _saved(path: Path, query_ids: Sequence[str], qrels: Qrels) -> tuple[Run, NDArray[np.bool_]]:
    """Read a saved run, and find the queries that are absent from it: a run file has no line for a query without results.

    Raises:
        UsageError: The run cannot be read, or belongs to another data set: too many queries are absent, or nothing is judged.
    """
    saved = runs.read(path)
    absent = np.array([query not in saved.scores for query in query_ids])
    if absent.mean() > _MOST_ABSENT:
        lacking = f"{absent.sum():,} of {queries(len(absent))}, such as {query_ids[int(absent.argmax())]!r}"
        raise UsageError(f"The run {path} has no results for {lacking}.", judgements.OTHER_RUN)
    judgements.check_corpus(replace(saved, name=str(path)), query_ids, qrels)
    return saved, absent


def _values(run: Run, experiment: Experiment, dataset: Dataset, measure: str) -> NDArray[np.float64]:
    """Return the values of a measure for a run, one for every query of the experiment."""
    run = self_matches.of_other_program(run, experiment.self_matches)
    values = per_query(run, dataset.qrels(), experiment.queries, relevant_from=dataset.relevant_from, measures=[measure])
    return values[measure]


def compare(experiment: Experiment, before: Experiment, dataset: Dataset, margin: float, name: str) -> Verdict:
    """Decide whether the default search of an index is at most `margin` worse than that of another index, by nDCG@10.

    Args:
        experiment: Results of the index that must pass.
        before: Results of the other index, on the same queries.
        dataset: The data set with the judgements.
        margin: How much worse the first index may be.
        name: Name of the other index.
    """
    assert experiment.default is not None  # the default table contains it
    assert before.default is not None
    mine, other = experiment.runs[experiment.default], before.runs[before.default]
    difference = _values(mine, experiment, dataset, LEADING) - _values(other, experiment, dataset, LEADING)
    gate = Gate(f"{LEADING} within {margin:g} of {name}", mine.name, LEADING, None, margin, None)
    return _margin_verdict(gate, mine.name, experiment, dataset, difference, name)


def _margin_verdict(
    gate: Gate, system: str, experiment: Experiment, dataset: Dataset, difference: NDArray[np.float64], against: str
) -> Verdict:
    """Decide by the differences of the queries that can show one: queries with a document that the measure counts as relevant."""
    assert gate.margin is not None
    kind, _ = measures.parse_measure(gate.measure)
    qrels, least = dataset.qrels(), 1 if kind == "ndcg" else dataset.relevant_from
    grades = [max(qrels.get(query, {}).values(), default=0) for query in experiment.queries]
    difference = difference[[grade >= least for grade in grades]]
    if len(difference) < _FEWEST:
        few = f"{queries(len(difference))} {'is' if len(difference) == 1 else 'are'} too few for a comparison"
        return Verdict(gate.text, met=False, reason=f"{system}: {gate.measure}: {few}")
    low, high = interval(difference)
    met = low >= -gate.margin
    mean = f"{difference.mean():+.4f}, 95 % between {low:+.4f} and {high:+.4f}"
    within = f"{'within' if met else 'not surely within'} {gate.margin:g} ({queries(len(difference))})"
    return Verdict(gate.text, met, f"{system}: {gate.measure} against {against}: {mean}: {within}")
