"""Tuned profiles pass from the live generation to the next one, and survive an update.

Profiles lie in `_meta` beside the lineage, and writing the lineage replaces the whole of it. `tune` and `profiles` write there at any
time, while a build runs for hours. So the profiles are read immediately before each write; everything else of the lineage is known.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.catalog import lineage
from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.rerank.stored_rerankers import fitting

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.engine import Engine

_PARTS = "*.mappings._meta.termweave.profile,*.mappings._meta.termweave.profiles"


def write(engine: Engine, index: str, made: Lineage, live: LiveGeneration | None) -> list[str]:
    """Store a lineage, with the profiles that the generation should have now.

    Those are the live generation's if both generations have the same models and signals, else this generation's own. Rules that read
    metadata which this generation lacks, or has in another type, are taken out of them: with them every search would be an error.

    Args:
        engine: The server.
        index: The generation.
        made: Its lineage; the profiles in it are not used.
        live: The generation that was live when the build began; None: there was none.

    Returns:
        Warnings about profiles and rules that are left behind.
    """
    profiles: dict[str, Any] = _read(engine, index) or {}
    warnings: list[str] = []
    if live is not None and live.index != index and (tuned := _read(engine, live.index)) is not None:
        if live.lineage.models == made.models and live.lineage.signals.keys() == made.signals.keys():
            profiles, warnings = fitting(replace(live.lineage, **{"profiles": {}, "profile": "", **tuned}), made.layout)
        elif names := ", ".join(
            each for each in tuned.get("profiles", ()) if each not in profiles.get("profiles", ())
        ):  # a copy has them
            warnings = [f"Profiles left behind ({names}): they were tuned for other models or signals. Tune again."]
    lineage.write(engine, index, replace(made, **{"profiles": {}, "profile": "", **profiles}))
    return warnings


def _read(engine: Engine, index: str) -> dict[str, Any] | None:
    """Read `Lineage.profiles` and `Lineage.profile` of an index; None if the index was deleted meanwhile."""
    try:
        answer = engine.request("GET", f"/{quote(index)}/_mapping", params={"filter_path": _PARTS})
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return dict(answer.get(index, {}).get("mappings", {}).get("_meta", {}).get("termweave", {}))
