"""Which generations of a name may go, and their going; what is left out of one generation's documents is `signals.pruning`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.indexer import generations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from termweave.engine import Engine


def prunable(engine: Engine, name: str, keep: int, *, unfinished: bool = False) -> list[generations.Generation]:
    """Generations that are neither live nor among the `keep` newest published ones; with `unfinished` those never finished, too.

    One that cannot be read stays: it may be whole, and of a newer version.
    """
    known = [each for each in generations.of(engine, name) if not each.unreadable]
    kept = [each.index for each in known if each.accepted][:keep]
    return [each for each in known if not each.live and each.index not in kept and (each.complete or unfinished)]


def prune(engine: Engine, name: str, old: Iterable[generations.Generation]) -> list[str]:
    """Delete generations, but for one that is live by now: between their listing and this, somebody may have been asked, and rolled back.

    Returns:
        Those deleted.
    """
    deleted = []
    for each in old:
        if generations.live(engine, name) != each.index:
            generations.remove(engine, each.index)
            deleted.append(each.index)
    return deleted
