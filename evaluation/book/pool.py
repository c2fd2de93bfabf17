"""The documents to judge for a query: the best of every way to search, joined, so that no way is preferred."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from termweave.evaluation.book.query_ids import placed
from termweave.evaluation.book.store import BookQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.evaluation.book.store import JudgementBook
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


def add(index: Index, book: JudgementBook, queries: Sequence[Query]) -> int:
    """Add queries to a book with their pools, those whose words it has (`query_ids.placed`) only once; one that lacks words gets them.

    Returns:
        How many queries are new, or have words now.
    """
    known = {each.id: each for each in book.queries()}
    wanted = dict.fromkeys(placed(queries, [*known.values()]))
    new = pooled(index, [each for each in wanted if each.id not in known or known[each.id].text.strip() != each.text])
    for each in new:
        if each.id in known:
            book.change(each.id, each.pool, text=each.text)
    return book.add(new) + sum(each.id in known for each in new)


def order_for(judge: str, query: BookQuery) -> list[str]:
    """The pool in an order that is random, different for each judge, and the same each time."""
    return sorted(
        query.pool, key=lambda document: sha256(f"{judge}\0{query.id}\0{document}".encode("utf-8", "surrogatepass")).digest()
    )
