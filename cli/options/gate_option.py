"""`termweave index --require` and `--within`: requirements that a generation must meet before it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.cli.common.output import Output
    from termweave.engine import Engine
    from termweave.indexer import BuildOptions


class PublicationGate:
    """The requirements of one build. The data set with the judged queries is opened before the build begins.

    Attributes:
        verdicts: The verdict on each requirement as JSON data, once the generation was evaluated.
    """

    def __init__(
        self,
        server: Engine,
        name: str,
        required: Sequence[str],
        within: float | None,
        dataset: str,
        options: BuildOptions,
        out: Output,
    ) -> None:
        from termweave import corpora
        from termweave.errors import UsageError
        from termweave.evaluation import gates

        self._server, self._name, self._options, self._out = server, name, options, out
        self._required, self._within = [gates.parse(each) for each in required], within
        try:
            self._judged = corpora.open_dataset(dataset) if required or within is not None else None
        except UsageError as error:
            raise UsageError(error.message, f"--on DATASET names the judged queries of the gate. {error.hint}") from None
        self.verdicts: list[dict[str, Any]] = []
        if self._judged is not None:
            gates.check_saved_runs(self._required, [query.id for query in self._judged.queries()], self._judged.qrels())

    def __call__(self, generation: str) -> None:
        """Check whether a complete generation meets the requirements.

        Raises:
            GateNotMet: A requirement is not met.
        """
        from termweave.errors import GateNotMet
        from termweave.evaluation import evaluate, gates, measures
        from termweave.indexer.generations import generations
        from termweave.search import Index

        if self._judged is None:
            return
        index = Index.open(self._server, generation, weights=self._options.weights, dense=self._options.dense)
        experiment = evaluate(index, self._judged, required=self._required)
        verdicts = [(gate.text, gates.check(gate, experiment, self._judged)) for gate in self._required]
        live = generations.live(self._server, self._name)
        if self._within is not None and live is None:
            self._out.say(f"{self._name!r} has no live generation to compare with.")
        elif self._within is not None and live is not None:
            before = evaluate(Index.open(self._server, live), self._judged)
            compared = gates.compare(experiment, before, self._judged, self._within, live)
            verdicts.append((f"{measures.LEADING} within {self._within:g} of {live}", compared))
        self.verdicts = [verdict.as_json(text) for text, verdict in verdicts]
        for _, verdict in verdicts:
            if verdict.met:  # the error below reports what is not met
                self._out.say(f"Met: {verdict.reason}.")
        missed = [verdict.reason for _, verdict in verdicts if not verdict.met]
        if missed:
            raise GateNotMet(
                f"{'; '.join(missed)}.",
                f"{generation} is complete but was not published. 'termweave promote {self._name} {generation}' publishes it anyway, "
                f"'termweave prune {self._name}' removes it.",
            )
