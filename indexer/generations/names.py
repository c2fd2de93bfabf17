"""The names of all indices that termweave made on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from termweave.engine import Engine


def names(engine: Engine) -> list[str]:
    """Return every name with at least one generation, sorted; one request, whatever the number of indices.

    A name whose first build is unfinished counts, too: its generation takes up disk.
    """
    params = {"filter_path": "*.mappings._meta.termweave.name", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices("/*/_mapping", "mappings", params=params)
    return sorted({str(index["mappings"]["_meta"]["termweave"]["name"]) for index in mappings.values()})
