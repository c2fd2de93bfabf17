"""Let the server fuse the signals: `--server-fusion`. `termweave.search.retrieval.hybrid_query` says how the server's fusion differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from termweave.declared_settings import Setting
from termweave.search.feature import Feature

if TYPE_CHECKING:
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True, kw_only=True)
class ServerFusionOptions:
    """Whether the server fuses.

    Attributes:
        server_fusion: Let the server fuse the signals. Its scores differ (`termweave.search.retrieval.hybrid_query`) and cannot be
            explained.
    """

    server_fusion: Annotated[
        bool,
        Setting(
            "Let the server fuse the signals by min-max (needs the plugin neural-search). The lowest hit of a list counts 0, so that "
            "scores and order differ from hybrid@min-max if few documents match. Not for passages.",
            control="",
        ),
    ] = False


class ServerFusion(Feature[ServerFusionOptions]):
    """Retrieves one list that the server fused, in place of one list from each signal."""

    local = False

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask the server to fuse the signals of the mode."""
        return replace(plan, server_fusion=self.search.mode)
