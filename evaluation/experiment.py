"""A table of modes and measures: queries encoded once, the engine asked once a signal, every mode ranked from those lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from termweave.errors import InputError
from termweave.evaluation.measures import MEASURES, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.records import Run
from termweave.search import modes
from termweave.search.ranking import Reranking, order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.search import Index

#: Queries a request.
_QUERIES = 16
BASELINE = "BM25"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        system: As tables name it: "BM25", "weights", "hybrid+rNN".
        mode: As `--mode` takes it.
        reranker: "none" or "rnn".
        values: Measure -> mean over the queries.
        p: Measure -> p against the baseline, corrected over the table (Holm); empty for the baseline.
        wins: Queries with a better nDCG@10 than the baseline's.
        losses: Queries with a worse one.
        judged: Mean share of the ten best that are judged at all.
    """

    system: str
    mode: str
    reranker: str
    values: Mapping[str, float]
    p: Mapping[str, float] = field(default_factory=dict)
    wins: int = 0
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
    """

    dataset: str
    queries: tuple[str, ...]
    baseline: str
    rows: tuple[Row, ...]
    runs: Mapping[str, Run]


@dataclass(frozen=True, slots=True)
class System:
    """A mode with or without reranking."""

    name: str
    mode: str
    reranking: Reranking | None = None


def default_systems(signals: Sequence[str]) -> list[System]:
    """BM25, each other signal, hybrid, hybrid reranked: as far as the index has them."""
    systems = [System(BASELINE if name == "lexical" else name, name) for name in signals]
    if len(modes.hybrid(signals)) > 1:
        systems.append(System("hybrid", "hybrid"))
    if "dense" in signals:
        systems.append(System("hybrid+rNN", "hybrid", Reranking()))
    return systems


def evaluate(
    index: Index,
    dataset: Dataset,
    systems: Sequence[System] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    depth: int = 100,
) -> Experiment:
    """Evaluate systems on an index.

    Args:
        index: The index.
        dataset: Queries and judgements on its documents.
        systems: What to compare; the first is the baseline. None: all that the index can do.
        progress: Called with (queries done, all).
        depth: Candidates a signal, and length of the runs.

    Raises:
        InputError: The data set has no judged queries in this split, or none of its documents is in the index.
    """
    systems = systems or default_systems(index.signals)
    queries, qrels = dataset.queries(), dataset.qrels()
    if not queries:
        raise InputError(
            f"{dataset.name} has no judged queries in the split {dataset.split!r}.",
            f"Splits there are: {', '.join(dataset.splits())}.",
        )
    runs = _runs(index, [(query.id, query.text) for query in queries], systems, progress, depth)
    ids = [query.id for query in queries]
    _check_overlap(index, dataset.name, runs, qrels)
    found = {system.name: per_query(runs[system.name], qrels, ids, relevant_from=dataset.relevant_from) for system in systems}
    rows = [_row(system, found, systems[0].name, runs, qrels) for system in systems]
    return Experiment(f"{dataset.name}:{dataset.split}", tuple(ids), systems[0].name, tuple(_corrected(rows)), runs)


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
                places = order(candidates, chosen[system.name], system.reranking)[:depth]
                scores[system.name][identity] = {place.id: place.score for place in places}
        progress(min(start + _QUERIES, len(queries)), len(queries))
    return {name: Run(name, found) for name, found in scores.items()}


def _check_overlap(index: Index, name: str, runs: Mapping[str, Run], qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Judgements about other documents than the index holds would give a table of zeros that means nothing."""
    for run in runs.values():
        for query, scores in run.scores.items():
            if scores.keys() & qrels.get(query, {}).keys():
                return
    raise InputError(
        f"Not one judged document of {name} was found in the index {index.name!r}.",
        "Is this the data set the index was made from?",
    )


def _row(
    system: System,
    found: Mapping[str, Mapping[str, NDArray[np.float64]]],
    baseline: str,
    runs: Mapping[str, Run],
    qrels: Mapping[str, Mapping[str, int]],
) -> Row:
    mine, base = found[system.name], found[baseline]
    p = {} if system.name == baseline else {name: randomisation_test(mine[name], base[name]) for name in MEASURES}
    difference = mine["nDCG@10"] - base["nDCG@10"]
    return Row(
        system=system.name,
        mode=system.mode,
        reranker="rnn" if system.reranking else "none",
        values={name: float(values.mean()) for name, values in mine.items()},
        p=p,
        wins=int((difference > 0).sum()),
        losses=int((difference < 0).sum()),
        judged=_judged(runs[system.name], qrels),
    )


def _judged(run: Run, qrels: Mapping[str, Mapping[str, int]]) -> float:
    """Mean share of the ten best that are judged; pooled judgements punish what was not pooled."""
    shares = []
    for query, scores in run.scores.items():
        best = list(scores)[:10]
        shares.append(sum(document in qrels.get(query, {}) for document in best) / len(best) if best else 0.0)
    return sum(shares) / len(shares) if shares else 0.0


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Holm's correction over the systems of the table, measure by measure."""
    from dataclasses import replace  # noqa: PLC0415

    compared = [row for row in rows if row.p]
    corrected = {name: holm([row.p[name] for row in compared]) for name in MEASURES}
    values = {row.system: {name: corrected[name][position] for name in MEASURES} for position, row in enumerate(compared)}
    return [replace(row, p=values[row.system]) if row.p else row for row in rows]
