"""Compare two indices on the same judged queries: `termweave evaluate --against`, and what a generation must meet before it is published.

The default search of one index is the baseline of the other, and a sentence says which of the two to take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from termweave.catalog.lineage import exists, read_lineage, resolve_index
from termweave.evaluation import gates, judgements
from termweave.evaluation.experiment import Experiment, evaluate, runs_of
from termweave.evaluation.measures import ALPHA, LEADING
from termweave.evaluation.systems import System, default_system, trained_on, untuned_systems
from termweave.records import Run
from termweave.search import Index, self_matches
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.corpora import Dataset
    from termweave.engine import Engine
    from termweave.evaluation.gates import Gate, Verdict


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
    """Evaluate an index with the default search of another index as the baseline; the last note says which of the two to take.

    Args:
        index: The index that is evaluated.
        name: Name of `index`.
        other: The index to compare with.
        against: Name of `other`.
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
    searched, shortened = runs_of(other, dataset.queries(), [system], progress, 100, dataset.qrels())
    compared = Run(against, searched[system.name].scores)
    default = default_system(index)
    results = evaluate(index, dataset, systems or [default], progress, baseline=compared, required=required, is_ours=True)
    of_other = [f"{against}: {note}" for note in (*notes, *shortened)]
    return replace(results, notes=(*results.notes, *of_other, verdict(results, name, default.name)))


def verdict(experiment: Experiment, name: str, default: str) -> str:
    """Return a sentence that says which of two indices to take: the evaluated one, judged by its default search, or the baseline."""
    (base,) = [row for row in experiment.rows if row.system == experiment.baseline]
    row = next((each for each in experiment.rows if each.system == default), None)
    if row is None:
        return f"The default search of {name} is not in the table: leave --mode and --rerank out to compare the two indices."
    mine, other, p = row.values[LEADING], base.values[LEADING], row.p[LEADING]
    figures = f"{LEADING} {mine:.4f} against {other:.4f} of {base.system}, p = {p:.3f}, {counted(len(experiment.queries), 'query', 'queries')}"
    caveat = ""
    (less, few), (more, many) = sorted(((name, row.judged), (base.system, base.judged)), key=lambda each: each[1])
    if few < many / 2:  # a book has the judgements of what the other index found
        shares = f"Of the ten best hits of {less} {few:.0%} are judged, of {more} {many:.0%}"
        caveat = f" {shares}: judge more hits of {less} first, because hits without a judgement count as not relevant."
    if p >= ALPHA:
        return f"{name} and {base.system} may differ by chance ({figures}): take the one that costs less.{caveat}"
    better = name if mine > other else base.system
    return f"Take {better}: the difference is more than chance ({figures}).{caveat}"


@dataclass(frozen=True)
class PublicationGate:
    """The requirements of one build, for the argument `gate` of `build` and `update`.

    Attributes:
        server: The server.
        name: The alias whose generation is built.
        judged: The judged queries that the generation is measured on; None: nothing is required.
        required: Requirements.
        within: The largest loss of nDCG@10 against the live generation; None: no comparison is made.
        say: Called with a sentence for each requirement that is met, and one about queries that are documents.
        verdicts: The verdict on each requirement, once the generation was measured.
    """

    server: Engine
    name: str
    judged: Dataset | None = None
    required: Sequence[Gate] = ()
    within: float | None = None
    say: Callable[[str], None] = lambda _: None
    verdicts: list[Verdict] = field(default_factory=list)

    def check(self, signals: Sequence[str] | None) -> None:
        """Check before a build whatever can be checked: the judged queries, the requirements' systems and runs, and the live generation.

        Args:
            signals: The signals that the generation may have; None: the signals of the live generation.

        Raises:
            InputError: No query is judged, or the live generation, which is compared, holds none of the judged documents.
            UsageError: A requirement is about a system or a run that does not exist, or a model of the live generation is missing here.
        """
        if self.judged is None:
            return
        ids, qrels = [query.id for query in judgements.judged_queries(self.judged)], self.judged.qrels()
        live = self._live()
        live_lineage = read_lineage(self.server, live) if live is not None else None
        if signals is None:
            signals = list(live_lineage.signals) if live_lineage else []
        names = [system.name for system in untuned_systems(signals)]
        table = [*names, *([live_lineage.profile] if live_lineage and live_lineage.profile else [])]
        gates.check_before(self.required, table, table[0], ids, qrels)
        if self.within is not None and live is not None:
            judgements.absent_from_index(Index.open(self.server, live), self.judged.name, qrels)

    def _live(self) -> str | None:
        return resolve_index(self.server, self.name) if exists(self.server, self.name) else None

    def __call__(self, generation: str) -> str:
        """Measure a complete generation, and say which requirements it does not meet; "": it meets all."""
        if self.judged is None:
            return ""
        index = Index.open(self.server, generation)
        experiment = evaluate(index, self.judged, required=self.required)
        for remark in self_matches.remarks(experiment.self_matches):
            self.say(remark)
        self.verdicts[:] = [gates.verdict(gate, experiment, self.judged) for gate in self.required]
        live = self._live()
        if self.within is not None and live is None:
            self.say(f"{self.name!r} has no live generation to compare with.")
        elif self.within is not None and live is not None:
            other = Index.open(self.server, live)
            before = evaluate(other, self.judged, [default_system(other)])
            self.verdicts.append(gates.compare(experiment, before, self.judged, self.within, live))
        for verdict in self.verdicts:
            if verdict.met:  # what is not met is returned
                self.say(f"Met: {verdict.reason}.")
        missed = [verdict.reason for verdict in self.verdicts if not verdict.met]
        return f"{'; '.join(missed)}." if missed else ""
