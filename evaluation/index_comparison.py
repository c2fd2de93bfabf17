"""Compare two indices on the same judged queries: the default search of one is the baseline of the other, and a sentence says which to take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.evaluation import judgements
from termweave.evaluation.experiment import evaluate, runs_of
from termweave.evaluation.measures import LEADING
from termweave.evaluation.significance import ALPHA
from termweave.evaluation.systems import default_system, trained_on
from termweave.records import Run
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment
    from termweave.evaluation.gates import Gate
    from termweave.evaluation.systems import System
    from termweave.search import Index


def evaluate_against(
    index: Index,
    name: str,
    other: Index,
    against: str,
    dataset: Dataset,
    systems: Sequence[System] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
    required: Sequence[Gate] = (),
) -> Experiment:
    """Evaluate an index with the default search of another one as the baseline; the last note says which to take.

    Args:
        index: The index.
        name: Its name.
        other: The index to compare with.
        against: Its name.
        dataset: The judged queries.
        systems: The ways of searching `index`; None: its default search.
        progress: Called with (queries done, total), for each index.
        required: As `experiment.evaluate`.

    Raises:
        InputError: One of the indices holds none of the judged documents, or as `experiment.evaluate`.
        UsageError: As `experiment.evaluate`.
    """
    system = default_system(other)
    stages = system.reranking.stages if system.reranking else ()
    judgements.check_clicks(stages, dataset)
    notes = [
        *judgements.absent_from_index(other, dataset.name, dataset.qrels()),
        *judgements.profiles_fitted_on(other, {system.mode}, dataset),
        *trained_on(stages, dataset),
    ]
    searched, shortened = runs_of(other, dataset.queries(), [system], progress, 100)
    compared = Run(against, searched[system.name].scores)
    default = default_system(index)
    made = evaluate(index, dataset, systems or [default], progress=progress, baseline=compared, required=required, is_ours=True)
    of_other = [f"{against}: {note}" for note in (*notes, *shortened)]
    return replace(made, notes=(*made.notes, *of_other, verdict(made, name, default.name)))


def verdict(experiment: Experiment, name: str, default: str) -> str:
    """Say which of two indices to take: the evaluated one, by its default search, or the baseline."""
    (base,) = [row for row in experiment.rows if row.system == experiment.baseline]
    row = next((each for each in experiment.rows if each.system == default), None)
    if row is None:
        return f"The default search of {name} is not in the table: leave --mode and --rerank out to compare the two indices."
    mine, other, p = row.values[LEADING], base.values[LEADING], row.p[LEADING]
    figures = f"{LEADING} {mine:.4f} against {other:.4f} of {base.system}, p = {p:.3f}, {counted(len(experiment.queries), 'query', 'queries')}"
    caveat = _less_judged(*sorted(((name, row.judged), (base.system, base.judged)), key=lambda each: each[1]))
    if p >= ALPHA:
        return f"{name} and {base.system} may differ by chance ({figures}): take the one that costs less.{caveat}"
    better = name if mine > other else base.system
    return f"Take {better}: the difference is more than chance ({figures}).{caveat}"


def _less_judged(less: tuple[str, float], more: tuple[str, float]) -> str:
    """Say that one index's ten best documents are judged less than half as often: a book has those that the other one found."""
    if less[1] >= more[1] / 2:
        return ""
    return (
        f" Of the ten best of {less[0]} {less[1]:.0%} are judged, of {more[0]} {more[1]:.0%}, and the others count as not relevant: "
        "perhaps judge them first."
    )
