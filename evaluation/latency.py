"""How long a search takes: whole searches one at a time, as a user makes them, the systems taking turns."""

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
    """Milliseconds a search, encoding of the query and fetching of the hits included.

    Attributes:
        median: Half of the searches were faster.
        p95: 95 % were.
        queries: How many were timed.
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

    Systems take turns query by query, so that whatever else the machine does meets all of them alike; each begins in turn,
    because the first search of a query warms the server's caches for the others.

    Args:
        index: The index.
        systems: What to time.
        queries: Texts; the first one is searched once more before, untimed.
        progress: Called with (queries done, all).

    Returns:
        System -> latency; empty without queries.
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
    index.answer(query, mode=system.mode, rerank=system.reranker, reranking=system.reranking)
