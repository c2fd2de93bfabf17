"""Requirements that a generation must meet before it is published: `termweave index --require` and `--within`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from termweave.catalog import lineage
from termweave.evaluation import evaluate, gates, judgements, measures, systems
from termweave.search import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.corpora import Dataset
    from termweave.engine import Engine
    from termweave.evaluation.gates import Gate


@dataclass(frozen=True)
class PublicationGate:
    """The requirements of one build, for the argument `gate` of `build` and `update`.

    Attributes:
        server: The server.
        name: The alias.
        judged: The judged queries that the generation is measured on; None: nothing is required.
        required: Requirements.
        within: The largest loss of nDCG@10 against the live generation; None: it is not compared with it.
        say: Called with a sentence for each requirement that is met.
        verdicts: The verdict on each requirement as JSON data, once the generation was measured.
    """

    server: Engine
    name: str
    judged: Dataset | None = None
    required: Sequence[Gate] = ()
    within: float | None = None
    say: Callable[[str], None] = lambda _: None
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def check(self, signals: Sequence[str] | None) -> None:
        """Refuse before a build what could only be refused after it.

        Args:
            signals: The signals that the generation may have; None: those of the live one.

        Raises:
            InputError: No query is judged, or the live generation, which is compared, holds none of the judged documents.
            UsageError: A requirement is about a system or a run that does not exist, or a model of the live generation is missing here.
        """
        if self.judged is None:
            return
        qrels = self.judged.qrels()
        gates.check_saved_runs(self.required, [query.id for query in judgements.judged_queries(self.judged)], qrels)
        live = self._live()
        made = lineage.read(self.server, live) if live is not None else None
        if signals is None:
            signals = list(made.signals) if made is not None else []
        names = [system.name for system in systems.untuned_systems(signals)]
        table = [*names, *([made.profile] if made and made.profile else [])]
        for gate in self.required:
            gates.system_of(gate, table, table[0])
        if self.within is not None and live is not None:
            judgements.absent_from_index(Index.open(self.server, live), self.judged.name, qrels)

    def _live(self) -> str | None:
        return lineage.resolve(self.server, self.name) if lineage.exists(self.server, self.name) else None

    def __call__(self, generation: str) -> str:
        """Measure a complete generation; returns the requirements that it does not meet, or ""."""
        if self.judged is None:
            return ""
        index = Index.open(self.server, generation)
        experiment = evaluate(index, self.judged, required=self.required)
        verdicts = [(gate.text, gates.check(gate, experiment, self.judged)) for gate in self.required]
        live = self._live()
        if self.within is not None and live is None:
            self.say(f"{self.name!r} has no live generation to compare with.")
        elif self.within is not None and live is not None:
            other = Index.open(self.server, live)
            before = evaluate(other, self.judged, [systems.default_system(other)])
            compared = gates.compare(experiment, before, self.judged, self.within, live)
            verdicts.append((f"{measures.LEADING} within {self.within:g} of {live}", compared))
        self.verdicts[:] = [verdict.as_json(text) for text, verdict in verdicts]
        for _, verdict in verdicts:
            if verdict.met:  # what is not met is returned
                self.say(f"Met: {verdict.reason}.")
        missed = [verdict.reason for _, verdict in verdicts if not verdict.met]
        return f"{'; '.join(missed)}." if missed else ""
