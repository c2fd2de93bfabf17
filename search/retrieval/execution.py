"""How the engine is asked: each signal by itself and fused here, or otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.search import server_side, two_phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from termweave.records import Capabilities
    from termweave.search.candidates import Legs
    from termweave.search.modes import Mode
    from termweave.signals import Signal


@dataclass(frozen=True, slots=True)
class Execution:
    """Ways around the plain `_msearch` of one leg a signal.

    Attributes:
        two_phase: The heavy terms of weighted queries retrieve, the light ones rescore (see `two_phase`).
        fused: The mode that the server fuses itself (see `server_side`); None: fusion is the client's.
    """

    two_phase: bool = False
    fused: Mode | None = None

    def check(self, capabilities: Capabilities, signals: Sequence[Signal]) -> None:
        """See that the server can do it, and that there is something to do.

        Raises:
            UsageError: It cannot, there is nothing, or the two cannot be had together.
        """
        if self.two_phase and not any(signal.needs == "weights" for signal in signals):
            searched = " and ".join(signal.name for signal in signals)
            raise UsageError(
                f"Two phases tell heavy query terms from light ones, and a search by {searched} weighs none.",
                "Leave --two-phase out, or search with weights.",
            )
        if self.fused is None:
            return
        server_side.check(capabilities, self.fused)
        if self.two_phase:
            raise UsageError(
                "The server rescores before it fuses, not each signal by itself.", "Leave --two-phase or --server-fusion out."
            )

    def room(self, capabilities: Capabilities, signals: Sequence[Signal]) -> Capabilities:
        """The server with the clauses that each signal may send: those of words share the limit where one query holds them all."""
        of_words = sum(signal.needs != "dense" for signal in signals)
        if self.fused is None or of_words < 2:
            return capabilities
        return replace(capabilities, max_clause_count=capabilities.max_clause_count // of_words)

    def shape(
        self,
        prepared: Legs,
        signals: Sequence[Signal],
        capabilities: Capabilities,
        *,
        depth: int,
        where: Sequence[Mapping[str, Any]],
    ) -> Legs:
        """The searches of one query as they are to be sent.

        Raises:
            UsageError: The index holds passages: the engine cannot group them by document and rescore or fuse at once.
        """
        if (self.two_phase or self.fused) and any("collapse" in body for body in prepared.bodies.values()):
            raise UsageError(
                "This index holds passages; the engine cannot group them by document and rescore or fuse at once.",
                "Leave --two-phase and --server-fusion out.",
            )
        if self.two_phase:
            return two_phase.split(prepared, signals, capabilities, depth=depth, where=where)
        return server_side.fused(prepared, self.fused, depth) if self.fused else prepared

    def answering(self, signals: Sequence[Signal]) -> Sequence[Signal | server_side.FusedList]:
        """Whose lists come back."""
        return [server_side.FusedList()] if self.fused else signals
