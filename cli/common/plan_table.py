"""What a plan looks like in a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from termweave.words import sized

if TYPE_CHECKING:
    from termweave.indexer.forecast import Forecast


def table(found: Forecast) -> str:
    """A line for each thing to know."""
    about = "" if found.exact else "about "
    clauses = found.clauses
    rows = {
        "documents": f"{about}{found.documents:,}",
        "passages": f"{about}{found.passages:,}",
        "source": f"{found.source}, {sized(found.source_bytes)}",
        "signals": ", ".join(found.signals),
        "models": ", ".join(f"{output}: {model}" for output, model in found.models.items()) or "none",
        "encoding": f"about {timedelta(seconds=round(found.encode_seconds))} on this machine",
        "index": f"about {sized(found.index_bytes)} a copy",
        "disk": f"{sized(found.disk_bytes)} free, while it is built",
        "heap": f"{sized(found.heap_bytes)} of the engine",
        "memory": f"{sized(found.cache_bytes)} beside the heap, for fast searches",
        "clauses": f"{clauses.mean:.1f} a query, {clauses.most} at most ({clauses.of}); the server allows {clauses.limit:,}",
    }
    return "\n".join(f"{name:<10} {said}" for name, said in rows.items())
