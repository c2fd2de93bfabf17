"""An evaluation: encode the queries once, fetch the candidates of each signal once, and rank them in every mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from termweave.evaluation import gates, judgements, measures
from termweave.evaluation.measures import ALPHA, JUDGED, LEADING, MEASURES, holm, per_query, randomisation_test
from termweave.evaluation.systems import Latency, System, default_of, default_systems, trained_on, with_baseline
from termweave.records import Encoding, Qrels, Query, Run, strictly_decreasing
from termweave.rerank.rerankers import CutShort, Need, budgets_remark
from termweave.search import profiles, self_matches
from termweave.search.batch import QUERIES
from termweave.search.ranking.order import order
from termweave.support import arguments
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.errors import UsageError
    from termweave.evaluation.gates import Gate
    from termweave.search import Index
    from termweave.search.retrieval.candidates import Candidates
    from termweave.search.rewriting.configuration import Rewriting

    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        system: Name of the system, such as "BM25", "weights" or "hybrid+rNN".
        mode: Value of `--mode`; "run" for a saved run.
        reranker: Value of `--rerank`.
        values: Measure -> mean over the queries.
        p: Measure -> p-value against the baseline, corrected for the table (Holm); empty for the baseline.
        wins: Number of queries with a better nDCG@10 than the baseline.
        ties: Number of queries with the same nDCG@10.
        losses: Number of queries with a worse nDCG@10.
        judged: Mean share of the ten best documents that are judged.
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
    """The results of an evaluation.

    Attributes:
        dataset: Name and split of the data set.
        queries: Ids of the queries, in the order of the data set.
        baseline: The system that the others are compared with.
        rows: One row for each system.
        runs: System -> its run.
        texts: Query id -> text.
        values: System -> measure -> float64 ``(len(queries),)``; the measures include `JUDGED`.
        notes: Remarks that a reader of the table should know, such as queries that cannot be answered.
        latency: System -> latency of a search, if it was measured.
        default: The system that `search` uses without a mode; None: this system is not in the table.
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
    def self_matches(self) -> set[str]:
        """Ids of the queries that are documents of the index."""
        return {query for run in self.runs.values() for query in run.self_matches}

    @property
    def compares(self) -> bool:
        """Whether there is a system besides the baseline."""
        return len(self.rows) > 1


@dataclass
class CandidateFetcher:
    """Fetches the candidates of every query from an index, once.

    Attributes:
        index: The index that is searched.
        signals: Names of the signals to search with.
        depth: Number of candidates from each signal.
        needs: What rerankers need of the candidates: vectors, texts.
        rewrite: How queries are rewritten; None: queries stay as they are.
        qrels: Judgements; a query's own document does not count unless they say so (`search.self_matches`).
        self_matches: Ids of the queries so far that are documents of the index.
        shortened: Signal -> number of queries so far that lost terms to the server's clause limit.
        refused: Text of a query -> why it was not searched.
    """

    index: Index
    signals: Sequence[str]
    depth: int
    needs: Collection[Need] = ()
    rewrite: Rewriting | None = None
    qrels: Qrels | None = None
    self_matches: set[str] = field(default_factory=set)
    shortened: Counter[str] = field(default_factory=Counter)
    refused: dict[str, UsageError] = field(default_factory=dict)

    def candidates(self, queries: Sequence[Query], progress: Callable[[int, int], None]) -> Iterator[Candidates]:
        """Yield the candidates of each query, in order; `progress` is called with (queries done, total)."""
        done = 0

        def search(texts: Sequence[str | Encoding]) -> list[Candidates]:
            return self.index.candidates(texts, self.signals, depth=self.depth, needs=self.needs, rewrite=self.rewrite)

        for part in in_parts(queries, QUERIES):
            searched = search([query.text for query in part])
            searched, documents = self_matches.without_own(self.index.open_generation, part, searched, search, self.qrels)
            self.self_matches.update(documents)
            for candidates in searched:
                self.shortened.update(name for name, clause in candidates.clauses.items() if clause.dropped)
                if (rewritten := candidates.query.rewritten) and rewritten.refusal:
                    self.refused[rewritten.typed] = rewritten.refusal
                yield candidates
            done += len(part)
            progress(done, len(queries))

    def notes(self) -> list[str]:
        """Return a remark for each signal in which queries lost terms, and on queries that are documents or were not searched."""
        refusals = list(self.refused.values())
        also = f", as do {measures.queries(len(refusals) - 1)} like it" if len(refusals) > 1 else ""
        refused = [f"{refusals[0].message} This query finds nothing{also}."] if refusals else []
        return [*refused, *self_matches.remarks(self.self_matches)] + [
            f"{measures.queries(count)} lost terms in {measures.label(name)}: the server allows no more clauses "
            "in a query (indices.query.bool.max_clause_count)."
            for name, count in sorted(self.shortened.items())
        ]


def evaluate(
    index: Index,
    dataset: Dataset,
    systems: Sequence[System] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
    depth: int = 100,
    baseline: str | Run | None = None,
    required: Sequence[Gate] = (),
    *,
    is_ours: bool = False,
) -> Experiment:
    """Evaluate systems on an index.

    Args:
        index: The index that is evaluated.
        dataset: Queries, and judgements of documents in the index.
        systems: The systems to compare; None compares everything that the index can do.
        progress: Called with (queries done, total).
        depth: Number of candidates from each signal, and length of the runs.
        baseline: A system, a mode, a run or the path of a saved one that the others are compared with; None: BM25, else the first.
        required: Gates to check later; their systems and saved runs are checked before the first query.
        is_ours: Whether a run given as baseline was searched for these very queries; such a run, however poor, is not checked for its corpus.

    Raises:
        InputError: The split has no judged queries, or none of the judged documents is in the index.
        UsageError: The baseline is neither a mode nor a run, or a gate is about a system or a run that does not exist.
    """
    arguments.check(index=index, dataset=dataset)
    systems = systems or default_systems(index)
    chosen, compared = with_baseline(systems, baseline, index)
    stages = [stage for system in chosen if system.reranking for stage in system.reranking.stages]
    judgements.check_clicks(stages, dataset)
    described = {system.name: (system.mode, system.reranker) for system in chosen}
    saved: dict[str, Run] = {}
    against = compared if isinstance(compared, str) else compared.name
    if isinstance(compared, Run):
        against = f"{against} (saved)" if against in described else against
        saved, described = {against: compared}, {against: ("run", "none"), **described}
    queries, qrels = judgements.judged_queries(dataset), dataset.qrels()
    ids = [query.id for query in queries]
    default = default_of(systems, index)
    gates.check_before(required, list(described), default, ids, qrels)
    notes = [
        *dataset.notes,
        *judgements.without_judgement(dataset),
        *judgements.absent_from_index(index, dataset.name, qrels),
        *judgements.without_relevant(qrels, dataset.relevant_from),
        *judgements.without_text(queries),
        *judgements.profiles_fitted_on(index, {system.mode for system in chosen}, dataset),
        *trained_on(stages, dataset),
        *(note for run in saved.values() if not is_ours for note in judgements.absent_from_run(run, ids, qrels)),
    ]
    new_runs, shortened = runs_of(index, queries, chosen, progress, depth, qrels)
    documents = {query for run in new_runs.values() for query in run.self_matches}
    saved = {name: self_matches.of_other_program(run, documents) for name, run in saved.items()}
    all_runs = {**saved, **new_runs}
    values = {  # a query that a run lacks counts as 0
        name: per_query(run, qrels, ids, relevant_from=dataset.relevant_from, measures=[*MEASURES, JUDGED])
        for name, run in all_runs.items()
    }
    return Experiment(
        dataset=f"{dataset.name}:{dataset.split}",
        queries=tuple(ids),
        baseline=against,
        rows=tuple(_rows(described, values, against)),
        runs=all_runs,
        texts={query.id: query.text for query in queries},
        values=values,
        notes=(*notes, *shortened, *_beaten_by_one_signal(chosen, values, index)),
        default=default,
    )


def _beaten_by_one_signal(
    systems: Sequence[System], values: Mapping[str, Mapping[str, NDArray[np.float64]]], index: Index
) -> list[str]:
    """Return a remark for each fused system without a reranker that is significantly below one of its own signals (Holm, p < .05)."""
    single: dict[str, System] = {}
    for system in systems:
        mode = index.mode(system.mode)
        if mode.single and system.reranking is None:
            single.setdefault(next(iter(mode.weights)), system)
    remarks = []
    for system in systems:
        mode = index.mode(system.mode)
        signals = [] if mode.single or system.reranking is not None else [name for name in mode.weights if name in single]
        mine = values[system.name][LEADING]
        alone = {name: values[single[name].name][LEADING] for name in signals}
        tests = holm([randomisation_test(each, mine) for each in alone.values()])
        better = {
            name: (float(each.mean()), p)
            for (name, each), p in zip(alone.items(), tests, strict=True)
            if p < ALPHA and each.mean() > mine.mean()
        }
        if better:
            best = max(better, key=lambda name: better[name])
            mean, p = better[best]
            remarks.append(
                f"{system.name} is below {single[best].name} alone: {LEADING} {mine.mean():.4f} against {mean:.4f} (p = {p:.4f}). "
                f"Search with --mode {single[best].mode}, or let 'termweave tune' fit the fusion."
            )
    return remarks


def runs_of(
    index: Index, queries: Sequence[Query], systems: Sequence[System], progress: Progress, depth: int, qrels: Qrels | None = None
) -> tuple[dict[str, Run], list[str]]:
    """Return the run of every system, and remarks on queries that lost terms or time, or are documents. Arguments: see `evaluate`."""
    scores: dict[str, dict[str, dict[str, float]]] = {system.name: {} for system in systems}
    cut_short: dict[str, list[CutShort]] = {system.name: [] for system in systems}
    rewritings = {system.name: profiles.rewriting(index.lineage, system.mode) for system in systems}
    different = list(dict.fromkeys(rewritings.values()))
    notes: list[str] = []
    documents = set[str]()
    for number, rewriting in enumerate(different):
        together = [system for system in systems if rewritings[system.name] == rewriting]
        chosen = {system.name: index.mode(system.mode) for system in together}
        signals = sorted({signal for mode in chosen.values() for signal in mode.weights})
        needs = {need for system in together if system.reranking for need in system.reranking.needs}
        fetcher = CandidateFetcher(index, signals, depth, needs, rewriting, qrels, documents)

        def report(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, len(different) * total)

        for query, candidates in zip(queries, fetcher.candidates(queries, report), strict=True):
            for system in together:
                places = order(candidates, chosen[system.name], system.reranking, depth, cut_short[system.name].append)
                scores[system.name][query.id] = strictly_decreasing({place.id: place.score for place in places})
        notes += fetcher.notes()
    notes += [f"{budgets_remark(cuts, name)} A faster machine would rank more." for name, cuts in cut_short.items() if cuts]
    return {name: Run(name, rankings, documents) for name, rankings in scores.items()}, list(dict.fromkeys(notes))


def _rows(
    described: Mapping[str, tuple[str, str]], values: Mapping[str, Mapping[str, NDArray[np.float64]]], baseline: str
) -> Iterator[Row]:
    """Yield the rows of the table. p-values are corrected over the systems of the table (Holm), separately for each measure."""
    base, others = values[baseline], [name for name in values if name != baseline]
    tests = {each: holm([randomisation_test(values[name][each], base[each]) for name in others]) for each in MEASURES}
    for name, mine in values.items():
        difference = mine[LEADING] - base[LEADING]
        mode, reranker = described[name]
        yield Row(
            system=name,
            mode=mode,
            reranker=reranker,
            values={measure: float(mine[measure].mean()) for measure in MEASURES},
            p={measure: tests[measure][others.index(name)] for measure in MEASURES} if name != baseline else {},
            wins=int((difference > 0).sum()),
            ties=int((difference == 0).sum()),
            losses=int((difference < 0).sum()),
            judged=float(mine[JUDGED].mean()),
        )
