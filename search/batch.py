"""Thousands of queries: blocks of them in flight at once, answers in the order of the questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.records import Query, Run
from termweave.search import paging
from termweave.search.options import checked
from termweave.search.ranking import order
from termweave.sequences import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from typing import Any

    from termweave.search.index import Index
    from termweave.search.modes import Mode
    from termweave.search.ranking import Place, Reranking

#: Queries a request.
QUERIES = 16


def ranked(
    index: Index,
    queries: Sequence[Query],
    mode: Mode,
    *,
    k: int = 100,
    candidates: int = 100,
    reranking: Reranking | None = None,
    where: Sequence[Mapping[str, Any]] = (),
    workers: int = 4,
    dropped: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Query, list[Place]]]:
    """Rank the documents for each of many queries.

    Open the index with `Index.pinned`: then all answers come from one generation, whatever happens to the alias.

    Args:
        index: The index.
        queries: Any number.
        mode: Signals and their weights.
        k: How many documents a query.
        candidates: How many each signal gives, at least `k`.
        reranking: Parameters of the reranker; None: none.
        where: Filters of the query DSL; all must hold.
        workers: Requests in flight at once; no more than twice as many blocks are held in memory.
        dropped: Told the name of a signal that left out terms of a query, because the server allows no more clauses.

    Yields:
        Each query with its places, best first, in the order of `queries`.
    """
    depth = max(candidates, k)

    def block(part: Sequence[Query]) -> list[tuple[Query, list[Place]]]:
        found = index.candidates(
            [query.text for query in part],
            list(mode.weights),
            depth=depth,
            window=candidates,
            where=where,
            with_vectors=reranking is not None,
        )
        for each in found:
            for signal, clause in each.clauses.items():
                if clause.dropped:
                    dropped(signal)
        return [(query, order(each, mode, reranking, k)) for query, each in zip(part, found, strict=True)]

    pool = ThreadPoolExecutor(workers, thread_name_prefix="termweave-search")
    waiting: deque[Future[list[tuple[Query, list[Place]]]]] = deque()
    try:
        for part in in_parts(queries, QUERIES):
            waiting.append(pool.submit(block, part))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:  # whoever stops listening stops the rest, too
        pool.shutdown(wait=True, cancel_futures=True)


def run(
    index: Index,
    queries: Mapping[str, str],
    *,
    mode: str | None = None,
    rerank: str | None = None,
    k: int = 100,
    candidates: int = 100,
    where: Sequence[Mapping[str, Any]] = (),
    reranking: Reranking | None = None,
    workers: int = 4,
    name: str = "",
) -> Run:
    """Rank the documents for many queries, all in the generation that is live now.

    Args:
        index: The index.
        queries: Query id -> text.
        mode: As `Index.answer` takes it, and so `rerank`, `where` and `reranking`.
        rerank: Likewise.
        k: How many documents a query.
        candidates: How many each signal gives.
        where: Likewise.
        reranking: Likewise.
        workers: Requests in flight at once.
        name: Of the run; the mode and the reranker unless said otherwise.

    Returns:
        A run, best first; a query that finds nothing is in it.

    Raises:
        UsageError: As `Index.answer`.
    """
    paging.reachable(k, 0, candidates)
    if not isinstance(queries, Mapping):
        raise UsageError(f"Queries are a mapping, id -> text, not {type(queries).__name__}.", 'Write {"q1": "first query"}.')
    if not hasattr(workers, "__index__") or workers < 1:
        raise UsageError(f"workers is a whole number from 1 on, not {workers!r}.")
    _, _, where = checked("", where=where)
    for query, text in queries.items():
        checked(text)
        if not isinstance(query, str):
            raise UsageError(f"The id of a query is text, not {type(query).__name__}.", f"Write {str(query)!r}.")
    pinned = copy(index)  # as `Index.pinned`, without opening the models once more
    pinned.name = pinned.generation
    chosen, options = pinned.choose(mode, rerank, reranking)
    asked = [Query(query, text) for query, text in queries.items()]
    found = ranked(pinned, asked, chosen, k=k, candidates=candidates, reranking=options, where=where, workers=workers)
    scores = {query.id: {place.id: place.score for place in places} for query, places in found}
    return Run(name or (chosen.name if options is None else f"{chosen.name}+{options.method}"), scores)
