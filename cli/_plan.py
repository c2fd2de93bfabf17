"""What a plan looks like in a terminal."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from termweave.indexer.forecast import Forecast

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def table(found: Forecast) -> str:
    """A line for each thing to know."""
    about = "" if found.exact else "about "
    clauses = found.clauses
    rows = {
        "documents": f"{about}{found.documents:,}",
        "passages": f"{about}{found.passages:,}",
        "source": f"{found.source}, {_bytes(found.source_bytes)}",
        "signals": ", ".join(found.signals),
        "models": ", ".join(f"{output}: {model}" for output, model in found.models.items()) or "none",
        "encoding": f"about {timedelta(seconds=round(found.encode_seconds))} on this machine",
        "index": f"about {_bytes(found.index_bytes)} a copy",
        "disk": f"{_bytes(found.disk_bytes)} free, while it is built",
        "heap": f"{_bytes(found.heap_bytes)} of the engine",
        "memory": f"{_bytes(found.cache_bytes)} beside the heap, for fast searches",
        "clauses": f"{clauses.mean:.1f} a query, {clauses.most} at most ({clauses.of}); the server allows {clauses.limit:,}",
    }
    return "\n".join(f"{name:<10} {said}" for name, said in rows.items())


def _bytes(size: float) -> str:
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if size >= 100 or unit == "bytes" else f"{size:.1f} {unit}"
