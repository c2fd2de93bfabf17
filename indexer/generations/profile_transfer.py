"""Tuned profiles pass from the live generation to the next one, and survive an update.

Profiles lie in `_meta` beside the lineage, and writing the lineage replaces the whole of it. `tune` and `profiles` write there at any
time, while a build runs for hours. So the profiles are read immediately before each write; everything else of the lineage is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.search.catalog import lineage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.engine import Engine
    from termweave.indexer.generations.generations import LiveGeneration
    from termweave.search.catalog.lineage import Lineage

_PARTS = "*.mappings._meta.termweave.profile,*.mappings._meta.termweave.profiles"


@dataclass(frozen=True)
class StoredProfiles:
    """The profiles of a generation.

    Attributes:
        profiles: `Lineage.profiles`.
        profile: `Lineage.profile`.
    """

    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profile: str = ""

    def within(self, made: Lineage) -> Lineage:
        """A lineage with these profiles."""
        return replace(made, profiles=self.profiles, profile=self.profile)


def write(engine: Engine, index: str, made: Lineage, live: LiveGeneration | None) -> list[str]:
    """Store a lineage, with the profiles that the generation should have now.

    Args:
        engine: The server.
        index: The generation.
        made: Its lineage; the profiles in it are not used.
        live: The generation that was live when the build began; None: there was none.

    Returns:
        Warnings about profiles that are left behind.
    """
    profiles, warnings = _to_have(engine, index, made, live)
    lineage.write(engine, index, profiles.within(made))
    return warnings


def _to_have(engine: Engine, index: str, made: Lineage, live: LiveGeneration | None) -> tuple[StoredProfiles, list[str]]:
    """The live generation's profiles if both generations have the same models and signals, else this generation's own."""
    own = _read(engine, index) or StoredProfiles()
    if live is None or live.index == index or (tuned := _read(engine, live.index)) is None:
        return own, []
    if live.lineage.models == made.models and live.lineage.signals.keys() == made.signals.keys():
        return tuned, []
    names = ", ".join(tuned.profiles)
    warning = f"Profiles left behind ({names}): they were tuned for other models or signals; tune again."
    return own, [warning] if names else []


def _read(engine: Engine, index: str) -> StoredProfiles | None:
    """Read the profiles of an index; None if the index was deleted meanwhile."""
    try:
        answer = engine.request("GET", f"/{quote(index)}/_mapping", params={"filter_path": _PARTS})
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return StoredProfiles(**answer.get(index, {}).get("mappings", {}).get("_meta", {}).get("termweave", {}))
