"""Tuned profiles pass from one generation to the next, and through an update.

They lie in `_meta` beside the lineage, and a mapping update replaces the whole of it. `tune` and `profiles` write there at any time,
a build or an update runs for hours: so it takes the profiles as they are when it writes, never those it read when it began.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.search import lineage

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.search.lineage import Lineage


def inherit(engine: Engine, index: str, live: str | None) -> list[str]:
    """Give a generation that is not published the profiles of the live one, where they mean the same.

    Args:
        engine: Where.
        index: The generation; the live one itself has what it needs.
        live: The one that was live when it was begun; None where there was none. It may have been deleted since.

    Returns:
        What a user should know: the profiles that are left behind.
    """
    if live is None or live == index or not lineage.exists(engine, live):
        return []
    before, own = lineage.read(engine, live), lineage.read(engine, index)
    if before.models != own.models or before.signals.keys() != own.signals.keys():
        left = ", ".join(before.profiles)
        return [f"Profiles left behind ({left}): they were tuned for other models or signals; tune again."] if left else []
    taken = replace(own, profiles=before.profiles, profile=before.profile)
    if taken != own:
        lineage.write(engine, index, taken)
    return []


def write(engine: Engine, index: str, found: Lineage, live: str | None) -> list[str]:
    """Store a lineage with the profiles as they are by now. Arguments and answer as `inherit`."""
    left = inherit(engine, index, live)
    own = lineage.read(engine, index)
    lineage.write(engine, index, replace(found, profiles=own.profiles, profile=own.profile))
    return left
