"""`termweave index --require`, `--within`: what a generation has to pass before it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.cli._options import Output
    from termweave.engine import Engine
    from termweave.indexer import Options


class Gate:
    """The requirements of one build, on one data set, which is opened before the build begins.

    Attributes:
        told: What became of each requirement, once the generation was there.
    """

    def __init__(
        self,
        server: Engine,
        name: str,
        required: Sequence[str],
        within: float | None,
        dataset: str,
        options: Options,
        out: Output,
    ) -> None:
        from termweave import corpora
        from termweave.evaluation import gates

        self._server, self._name, self._options, self._out = server, name, options, out
        self._required, self._within = [gates.parse(each) for each in required], within
        self._judged = corpora.open_dataset(dataset) if required or within is not None else None
        self.told: list[dict[str, Any]] = []
        if self._judged is not None:
            gates.readable(self._required, [query.id for query in self._judged.queries()], self._judged.qrels())

    def __call__(self, generation: str) -> None:
        """Ask it about a generation that is whole.

        Raises:
            GateNotMet: A requirement does not hold.
        """
        from termweave.errors import GateNotMet
        from termweave.evaluation import evaluate, gates, measures
        from termweave.indexer import generations
        from termweave.search import Index

        if self._judged is None:
            return
        index = Index.open(self._server, generation, weights=self._options.weights, dense=self._options.dense)
        found = evaluate(index, self._judged, required=self._required)
        verdicts = [(gate.text, gates.check(gate, found, self._judged)) for gate in self._required]
        live = generations.live(self._server, self._name)
        if self._within is not None and live is None:
            self._out.say(f"{self._name!r} has no live generation to compare with.")
        elif self._within is not None and live is not None:
            before = evaluate(Index.open(self._server, live), self._judged)
            compared = gates.compare(found, before, self._judged, self._within, live)
            verdicts.append((f"{measures.LEADING} within {self._within:g} of {live}", compared))
        self.told = [verdict.told(text) for text, verdict in verdicts]
        for _, verdict in verdicts:
            if verdict.met:  # what is not met is the error's to say
                self._out.say(f"Met: {verdict.reason}.")
        missed = [verdict.reason for _, verdict in verdicts if not verdict.met]
        if missed:
            ways = f"'termweave promote {self._name} {generation}' publishes it all the same, 'termweave prune {self._name}' removes it"
            raise GateNotMet(f"{'; '.join(missed)}.", f"{generation} is whole, and was not published: {ways}.")
