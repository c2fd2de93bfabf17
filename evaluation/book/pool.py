"""The documents to judge for a query: the best of every way to search, joined, so that no way is preferred."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from termweave.evaluation.book.store import BookQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.records import Query
    from termweave.search import Index

#: Documents that each way to search adds to a pool, and candidates of each signal.
DEPTH, _CANDIDATES = 10, 100


def pooled(index: Index, queries: Sequence[Query], progress: Callable[[int, int], None] = lambda *_: None) -> list[BookQuery]:
    """Make the pools of queries: the `DEPTH` best documents of each system of `termweave evaluate`.

    Args:
        index: The index to search.
        queries: The queries.
        progress: Called with (queries done, total).
    """
    from termweave.evaluation.experiment import runs_of  # noqa: PLC0415 - numpy, which the pages start without
    from termweave.evaluation.systems import default_systems  # noqa: PLC0415

    runs, _ = runs_of(index, queries, default_systems(index), progress, _CANDIDATES)
    pools = {
        query.id: {document for run in runs.values() for document in list(run.scores[query.id])[:DEPTH]} for query in queries
    }
    return [BookQuery(query.id, query.text, tuple(sorted(pools[query.id]))) for query in queries]


def order_for(judge: str, query: BookQuery) -> list[str]:
    """The pool in an order that is random, different for each judge, and the same each time."""
    return sorted(
        query.pool, key=lambda document: sha256(f"{judge}\0{query.id}\0{document}".encode("utf-8", "surrogatepass")).digest()
    )
