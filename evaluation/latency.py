"""Latency of searches: complete searches, one at a time, as a user makes them; the systems take turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
        queries: Texts; the first one is also searched once before the timing starts.
        progress: Called with (queries done, total).

    Returns:
        System -> latency; empty if there are no queries.
    """
    import numpy as np  # noqa: PLC0415

    if not queries:
        return {}
    took: dict[str, list[float]] = {system.name: [] for system in systems}
    for system in systems:
        _search(index, system, queries[0])
    for number, query in enumerate(queries):
        first = number % len(systems)
        for system in (*systems[first:], *systems[:first]):
            began = time.perf_counter()
            _search(index, system, query)
            took[system.name].append((time.perf_counter() - began) * 1000)
        progress(number + 1, len(queries))
    return {name: Latency(float(np.median(times)), float(np.quantile(times, 0.95)), len(times)) for name, times in took.items()}


def _search(index: Index, system: System, query: str) -> None:
    index.answer(query, mode=system.mode, rerank=system.reranking or "none")
