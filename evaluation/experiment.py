"""A table of modes and measures: queries encoded once, the engine asked once a signal, every mode ranked from those lists."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from termweave import doors
from termweave.errors import InputError
from termweave.evaluation import gates, judgements
from termweave.evaluation.asking import Asked
from termweave.evaluation.measures import JUDGED, LEADING, MEASURES, judged_share, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.evaluation.systems import default_systems, searched, with_baseline
from termweave.records import Run
from termweave.search.ranking import order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation.gates import Gate
    from termweave.evaluation.latency import Latency
    from termweave.evaluation.systems import System
    from termweave.records import Qrels, Query
    from termweave.search import Index


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        system: As tables name it: "BM25", "weights", "hybrid+rNN".
        mode: As `--mode` takes it; "run" for a saved one.
        reranker: As `--rerank` takes it.
        values: Measure -> mean over the queries.
        p: Measure -> p against the baseline, corrected over the table (Holm); empty for the baseline.
        wins: Queries with a better nDCG@10 than the baseline's.
        ties: Queries with the same.
        losses: Queries with a worse one.
        judged: Mean share of the ten best that are judged at all.
    """

    system: str
    mode: str
    reranker: str
    values: Mapping[str, float]
    p: Mapping[str, float] = field(default_factory=dict)
    wins: int = 0
    ties: int = 0
    losses: int = 0
    judged: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """What an evaluation found.

    Attributes:
        dataset: Name and split.
        queries: Ids, in the data set's order.
        baseline: The system p-values compare with.
        rows: The table.
        runs: System -> its run.
        texts: Query id -> text.
        values: System -> measure -> float64 ``(len(queries),)``; `JUDGED` among the measures.
        notes: What a reader of the table should know: queries and judgements that say nothing.
        latency: System -> how long a search takes, where it was measured.
        default: The system that is the search without a mode; None: the table does not have it.
    """

    dataset: str
    queries: tuple[str, ...]
    baseline: str
    rows: tuple[Row, ...]
    runs: Mapping[str, Run]
    texts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, NDArray[np.float64]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    latency: Mapping[str, Latency] = field(default_factory=dict)
    default: str | None = None

    @property
    def compares(self) -> bool:
        """Whether there is something beside the baseline."""
        return len(self.rows) > 1


def evaluate(
    index: Index,
    dataset: Dataset,
    systems: Sequence[System] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    depth: int = 100,
    baseline: str | None = None,
    required: Sequence[Gate] = (),
) -> Experiment:
    """Evaluate systems on an index.

    Args:
        index: The index.
        dataset: Queries and judgements on its documents.
        systems: What to compare. None: all that the index can do.
        progress: Called with (queries done, all).
        depth: Candidates a signal, and length of the runs.
        baseline: A system, a mode or the path of a saved run that the others are compared with; None: BM25, else the first.
        required: Gates that will be checked: what they look at has to be there, which is seen before the first query.

    Raises:
        InputError: The data set has no judged queries in this split, or none of its documents is in the index.
        UsageError: The baseline is neither a mode nor a run, or a gate looks at what is not there.
    """
    doors.check(index=index, dataset=dataset)
    asked = systems or default_systems(index)
    chosen, compared = with_baseline(asked, baseline, index)
    described = {system.name: (system.mode, system.reranker) for system in chosen}
    saved: dict[str, Run] = {}
    against = compared if isinstance(compared, str) else compared.name
    if isinstance(compared, Run):
        against = f"{against} (saved)" if against in described else against
        saved, described = {against: compared}, {against: ("run", "none"), **described}
    queries, qrels = dataset.queries(), dataset.qrels()
    if not queries:
        raise InputError(
            f"{dataset.name} has no judged queries in the split {dataset.split!r}.{judgements.left_out(dataset)}",
            f"Judge queries that the data set has, under its ids{judgements.other_splits(dataset)}.",
        )
    ids = [query.id for query in queries]
    default = searched(asked, index)
    gates.known(required, list(described), default)
    gates.readable(required, ids, qrels)
    notes = [
        *dataset.notes,
        *judgements.unjudged(dataset),
        *judgements.lacking(index, dataset.name, qrels),
        *judgements.idle(qrels, dataset.relevant_from),
        *judgements.wordless(queries),
        *judgements.tuned_here(index, {system.mode for system in chosen}, dataset),
        *(note for run in saved.values() for note in judgements.uncovered(run, ids, qrels)),
    ]
    ranked, shortened = _runs(index, queries, chosen, progress, depth)
    found = {**saved, **ranked}
    values = {name: _values(run, qrels, ids, dataset.relevant_from) for name, run in found.items()}
    rows = [_row(name, *described[name], values, against, with_p=name != against) for name in found]
    return Experiment(
        dataset=f"{dataset.name}:{dataset.split}",
        queries=tuple(ids),
        baseline=against,
        rows=tuple(_corrected(rows)),
        runs=found,
        texts={query.id: query.text for query in queries},
        values=values,
        notes=(*notes, *shortened),
        default=default,
    )


def _runs(
    index: Index, queries: Sequence[Query], systems: Sequence[System], progress: Callable[[int, int], None], depth: int
) -> tuple[dict[str, Run], list[str]]:
    """Every system's run, and what to say of the queries."""
    chosen = {system.name: index.mode(system.mode) for system in systems}
    signals = sorted({signal for mode in chosen.values() for signal in mode.weights})
    asked = Asked(index, signals, depth=depth, with_vectors=any(system.reranking for system in systems))
    scores: dict[str, dict[str, dict[str, float]]] = {system.name: {} for system in systems}
    for query, candidates in zip(queries, asked.candidates([query.text for query in queries], progress), strict=True):
        for system in systems:
            places = order(candidates, chosen[system.name], system.reranking, depth)
            scores[system.name][query.id] = {place.id: place.score for place in places}
    return {name: Run(name, found) for name, found in scores.items()}, asked.notes()


def _values(run: Run, qrels: Qrels, ids: Sequence[str], relevant_from: int) -> dict[str, NDArray[np.float64]]:
    """Every measure of every query; a query that the run lacks counts 0."""
    return {**per_query(run, qrels, ids, relevant_from=relevant_from), JUDGED: judged_share(run, qrels, ids)}


def _row(
    name: str,
    mode: str,
    reranker: str,
    values: Mapping[str, Mapping[str, NDArray[np.float64]]],
    baseline: str,
    *,
    with_p: bool,
) -> Row:
    mine, base = values[name], values[baseline]
    difference = mine[LEADING] - base[LEADING]
    return Row(
        system=name,
        mode=mode,
        reranker=reranker,
        values={measure: float(mine[measure].mean()) for measure in MEASURES},
        p={measure: randomisation_test(mine[measure], base[measure]) for measure in MEASURES} if with_p else {},
        wins=int((difference > 0).sum()),
        ties=int((difference == 0).sum()),
        losses=int((difference < 0).sum()),
        judged=float(mine[JUDGED].mean()),
    )


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Holm's correction over the systems of the table, measure by measure."""
    compared = [row for row in rows if row.p]
    corrected = {name: holm([row.p[name] for row in compared]) for name in MEASURES}
    values = {row.system: {name: corrected[name][position] for name in MEASURES} for position, row in enumerate(compared)}
    return [replace(row, p=values[row.system]) if row.p else row for row in rows]
