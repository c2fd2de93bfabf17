"""A table of modes and measures: queries encoded once, the engine asked once a signal, every mode ranked from those lists."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from termweave.errors import InputError
from termweave.evaluation.measures import MEASURES, judged_share, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.evaluation.systems import default_systems, with_baseline
from termweave.records import Run
from termweave.search.ranking import order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.evaluation.latency import Latency
    from termweave.evaluation.systems import System
    from termweave.records import Qrels
    from termweave.search import Index

#: Queries a request.
_QUERIES = 16
#: Judged documents a request asks after.
_IDS = 10_000
#: The measure that wins and losses count.
LEADING = MEASURES[0]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        system: As tables name it: "BM25", "weights", "hybrid+rNN".
        mode: As `--mode` takes it; "run" for a saved one.
        reranker: "none" or "rnn".
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
        values: System -> measure -> float64 ``(len(queries),)``; "judged@10" among the measures.
        notes: What a reader of the table should know: queries and judgements that say nothing.
        latency: System -> how long a search takes, where it was measured.
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


def evaluate(
    index: Index,
    dataset: Dataset,
    systems: Sequence[System] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    depth: int = 100,
    baseline: str | None = None,
) -> Experiment:
    """Evaluate systems on an index.

    Args:
        index: The index.
        dataset: Queries and judgements on its documents.
        systems: What to compare. None: all that the index can do.
        progress: Called with (queries done, all).
        depth: Candidates a signal, and length of the runs.
        baseline: A system, a mode or the path of a saved run that the others are compared with; None: BM25, else the first.

    Raises:
        InputError: The data set has no judged queries in this split, or none of its documents is in the index.
        UsageError: The baseline is neither a mode nor a run.
    """
    chosen, against = with_baseline(systems or default_systems(index), baseline, index)
    queries, qrels = dataset.queries(), dataset.qrels()
    if not queries:
        raise InputError(
            f"{dataset.name} has no judged queries in the split {dataset.split!r}.",
            f"Splits there are: {', '.join(dataset.splits())}.",
        )
    notes = [*dataset.notes, *_unjudged(dataset), *_lacking(index, dataset.name, qrels), *_idle(qrels, dataset.relevant_from)]
    found = _runs(index, [(query.id, query.text) for query in queries], chosen, progress, depth)
    described = {system.name: (system.mode, system.reranker) for system in chosen}
    ids = [query.id for query in queries]
    if isinstance(against, Run):
        notes += _uncovered(against, ids)
        name = against.name if against.name not in found else f"{against.name} (saved)"
        found, against, described = {name: against, **found}, name, {name: ("run", "none"), **described}
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
        notes=tuple(notes),
    )


def _runs(
    index: Index, queries: Sequence[tuple[str, str]], systems: Sequence[System], progress: Callable[[int, int], None], depth: int
) -> dict[str, Run]:
    chosen = {system.name: index.mode(system.mode) for system in systems}
    signals = sorted({signal for mode in chosen.values() for signal in mode.weights})
    with_vectors = any(system.reranking for system in systems)
    scores: dict[str, dict[str, dict[str, float]]] = {system.name: {} for system in systems}
    for start in range(0, len(queries), _QUERIES):
        part = queries[start : start + _QUERIES]
        gathered = index.candidates([text for _, text in part], signals, depth=depth, with_vectors=with_vectors)
        for (identity, _), candidates in zip(part, gathered, strict=True):
            for system in systems:
                places = order(candidates, chosen[system.name], system.reranking, depth)
                scores[system.name][identity] = {place.id: place.score for place in places}
        progress(min(start + _QUERIES, len(queries)), len(queries))
    return {name: Run(name, found) for name, found in scores.items()}


def _values(run: Run, qrels: Qrels, ids: Sequence[str], relevant_from: int) -> dict[str, NDArray[np.float64]]:
    """Every measure of every query; a query that the run lacks counts 0."""
    return {**per_query(run, qrels, ids, relevant_from=relevant_from), "judged@10": judged_share(run, qrels, ids)}


def _lacking(index: Index, name: str, qrels: Qrels) -> list[str]:
    """Judgements about other documents than the index holds would give a table of zeros that means nothing.

    The index itself is asked: that a system finds nothing judged is a result, not another data set.

    Raises:
        InputError: It holds not one of the judged documents.
    """
    judged = sorted({document for grades in qrels.values() for document in grades})
    held = 0
    for start in range(0, len(judged), _IDS):
        body = {
            "size": _IDS,
            "query": {"terms": {"id": judged[start : start + _IDS]}},
            "collapse": {"field": "id"},  # a document may lie in several passages
            "stored_fields": "_none_",
            "track_total_hits": False,
        }
        held += len(index.engine.request("POST", f"/{index.generation}/_search", body=body)["hits"]["hits"])
    if judged and not held:
        raise InputError(
            f"Not one judged document of {name} is in the index {index.name!r}.",
            "Is this the data set the index was made from?",
        )
    lost = len(judged) - held
    return [f"{lost:,} of {len(judged):,} judged documents are not in the index and cannot be found."] if lost > 0 else []


def _unjudged(dataset: Dataset) -> list[str]:
    """Queries of the file that the split says nothing of, where the reader counts them."""
    count = getattr(dataset, "unjudged", 0)
    return [f"{count:,} queries of the set have no judgement in {dataset.split!r} and are left out."] if count else []


def _idle(qrels: Qrels, relevant_from: int) -> list[str]:
    """Queries that no system can score on."""
    idle = sum(max(grades.values(), default=0) < relevant_from for grades in qrels.values())
    if not idle:
        return []
    return [
        f"{idle:,} of {len(qrels):,} queries have no relevant document (from grade {relevant_from}): all systems get 0 there."
    ]


def _uncovered(run: Run, ids: Sequence[str]) -> list[str]:
    absent = sum(query not in run.scores for query in ids)
    return [f"The run {run.name} has no results for {absent:,} of {len(ids):,} queries; they count 0."] if absent else []


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
        judged=float(mine["judged@10"].mean()),
    )


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Holm's correction over the systems of the table, measure by measure."""
    compared = [row for row in rows if row.p]
    corrected = {name: holm([row.p[name] for row in compared]) for name in MEASURES}
    values = {row.system: {name: corrected[name][position] for name in MEASURES} for position, row in enumerate(compared)}
    return [replace(row, p=values[row.system]) if row.p else row for row in rows]
