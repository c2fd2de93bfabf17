"""Latency of searches: complete searches, one at a time, as a user makes them; the systems take turns."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.evaluation.systems import System
    from termweave.search import Index


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of a search, from the encoding of the query to the fetched hits.

    Attributes:
        median: Half of the searches were faster than this.
        p95: 95 % of the searches were faster than this.
        queries: Number of timed searches.
    """

    median: float
    p95: float
    queries: int


def measure(
    index: Index,
    systems: Sequence[System],
    queries: Sequence[str],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Mapping[str, Latency]:
    """Time every system on every query.

    Every query is searched by all systems before the next query, so that other load on the machine affects all systems alike.
    Each system is the first one equally often, because the first search of a query warms the server's caches for the others.

    Args:
        index: The index that is searched.
        systems: The systems to time.
        queries: Texts; the first one is also searched once before the timing starts. Those that a search refuses, such as one that
            only excludes, are left out.
        progress: Called with (queries done, total).

    Returns:
        System -> latency; empty if there are no queries.
    """
    import numpy as np  # noqa: PLC0415

    took: list[dict[str, float]] = []
    for number, query in enumerate(queries):
        first = len(took) % len(systems)
        with suppress(UsageError):
            if not took:
                for system in systems:
                    _milliseconds(index, system, query)
            took.append({system.name: _milliseconds(index, system, query) for system in (*systems[first:], *systems[:first])})
        progress(number + 1, len(queries))
    times = {system.name: [each[system.name] for each in took] for system in systems if took}
    return {name: Latency(float(np.median(own)), float(np.quantile(own, 0.95)), len(own)) for name, own in times.items()}


def _milliseconds(index: Index, system: System, query: str) -> float:
    """Time of one search."""
    began = time.perf_counter()
    index.answer(query, mode=system.mode, rerank=system.reranking or "none")
    return (time.perf_counter() - began) * 1000
