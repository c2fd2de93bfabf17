"""Old generations: which ones `termweave prune` may delete. What `index --prune` leaves out is decided in `signals.pruning`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.indexer.generations import audit, deletion, generations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from termweave.engine import Engine


def prunable(engine: Engine, name: str, keep: int, *, unfinished: bool = False) -> list[generations.Generation]:
    """List the generations that may be deleted: neither live nor among the newest published ones.

    A generation that cannot be read is not listed: it may be whole, and of a newer version.

    Args:
        engine: The server.
        name: The alias.
        keep: How many of the newest published generations are kept.
        unfinished: Also list generations that were never finished.
    """
    known = [generation for generation in generations.list_generations(engine, name) if not generation.unreadable]
    kept = [generation.index for generation in known if generation.accepted][:keep]
    return [
        generation
        for generation in known
        if not generation.live and generation.index not in kept and (generation.complete or unfinished)
    ]


def prune(engine: Engine, name: str, old: Iterable[generations.Generation]) -> list[str]:
    """Delete generations. One that became live after it was listed is kept: the user may have taken long to confirm.

    Returns:
        The indices that were deleted.
    """
    deleted: list[str] = []
    live = None
    try:
        for generation in old:
            live = generations.live(engine, name)
            if live != generation.index:
                deletion.remove_generation(engine, generation.index)
                deleted.append(generation.index)
    finally:  # those before an error are gone
        if deleted:
            audit.write(engine, "delete generations", name, before=live, after=live, deleted=deleted)
    return deleted
