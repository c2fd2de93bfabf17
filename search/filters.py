"""What a search's filters do: whom they let pass, and whether there is anything to filter by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from termweave.engine import Engine


def passes(engine: Engine, index: str, document: str, where: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a document passes all filters.

    Args:
        engine: Where the index is.
        index: The concrete index.
        document: Source id.
        where: Filters of the query DSL.
    """
    body = {"query": {"bool": {"filter": [{"term": {"id": document}}, *where]}}}
    return bool(engine.request("POST", f"/{index}/_count", body=body)["count"])
