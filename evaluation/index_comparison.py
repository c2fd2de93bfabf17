"""Compare two indices on the same judged queries: the default search of one is the baseline of the other, and a sentence says which to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.evaluation.experiment import runs_of
from termweave.evaluation.measures import LEADING
from termweave.evaluation.systems import default_system
from termweave.records import Run
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment
    from termweave.search import Index

#: A difference with a smaller p-value counts as more than chance.
_CHANCE = 0.05


def default_run(index: Index, name: str, dataset: Dataset, progress: Callable[[int, int], None] = lambda *_: None) -> Run:
    """The run of an index's default search over the queries of a data set, under the name of the index."""
    system = default_system(index)
    made, _ = runs_of(index, dataset.queries(), [system], progress, 100)
    return Run(name, made[system.name].scores)


def verdict(experiment: Experiment, name: str) -> str:
    """Say which of two indices to take: the evaluated one, by its default search, or the baseline."""
    (base,) = [row for row in experiment.rows if row.system == experiment.baseline]
    row = next((each for each in experiment.rows if each.system == experiment.default), None)
    if row is None:
        return f"The default search of {name} is not in the table: leave --mode and --rerank out to compare the two indices."
    mine, other, p = row.values[LEADING], base.values[LEADING], row.p[LEADING]
    figures = f"{LEADING} {mine:.4f} against {other:.4f} of {base.system}, p = {p:.3f}, {counted(len(experiment.queries), 'query', 'queries')}"
    if p >= _CHANCE:
        return f"{name} and {base.system} may differ by chance ({figures}): take the one that costs less."
    better = name if mine > other else base.system
    return f"Take {better}: the difference is more than chance ({figures})."
