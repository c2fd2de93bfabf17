"""The names of all indices that termweave made on a server."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.indexer.generations import generations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave import answers
    from termweave.engine import Engine
    from termweave.indexer.generations.generations import Generation


def names(engine: Engine) -> list[str]:
    """Return every name with at least one generation, sorted; one request, whatever the number of indices.

    A name whose first build is unfinished counts, too: its generation takes up disk.
    """
    params = {"filter_path": "*.mappings._meta.termweave.name", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices("/*/_mapping", "mappings", params=params)
    return sorted({str(index["mappings"]["_meta"]["termweave"]["name"]) for index in mappings.values()})


def all_generations(engine: Engine) -> dict[str, list[Generation]]:
    """Name -> its generations, newest first, for every name that has any."""
    listed = {}
    for name in names(engine):
        with suppress(UsageError):  # deleted since the names were read, or an enriched index, which has none
            listed[name] = generations.list_generations(engine, name)
    return listed


def summaries(engine: Engine) -> list[answers.ListedIndex]:
    """Every index as JSON, as `termweave list --json` prints it."""
    return [_summary(name, listed) for name, listed in all_generations(engine).items()]


def _summary(name: str, listed: Sequence[Generation]) -> answers.ListedIndex:
    """One index as JSON; `generation` and all that describes it are null if no generation is live."""
    live = next((generation for generation in listed if generation.live), None)
    return {
        "name": name,
        "generation": live.index if live else None,
        "created": live.created if live else None,
        "documents": live.documents if live else None,
        "bytes": sum(generation.bytes for generation in listed),
        "generations": len(listed),
        "signals": list(live.signals) if live else [],
        "models": dict(live.models) if live else {},
    }
