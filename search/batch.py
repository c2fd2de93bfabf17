"""Answer thousands of queries: several blocks of queries at once, the answers in the order of the queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from termweave.errors import UsageError
from termweave.records import Query, Run, strictly_decreasing
from termweave.search import self_matches, single_query
from termweave.search.feature import Answered
from termweave.search.options import check_query
from termweave.search.retrieval import execution
from termweave.support.batching import in_parts
from termweave.support.normal_form import query_text

if TYPE_CHECKING:
    from termweave.rerank.rerankers import CutShort
    from termweave.search.index import Index
    from termweave.search.options import RunOptions
    from termweave.search.ranking.order import Place

_Part = TypeVar("_Part")
_Answer = TypeVar("_Answer")
#: Queries in one request.
QUERIES = 16


@dataclass
class BatchReport:
    """What happened to single queries of a batch, for remarks to the user.

    Attributes:
        dropped: Name of a signal, once for each query of which this signal left out terms because of the server's clause limit.
        cut_short: A note on a reranker whose time budget ended early, once for each query.
        refused: Query id -> the reason why this query was not searched; it has an empty ranking.
        self_matching: Ids of the queries that are documents of the index themselves: each is ranked without its own document (`search.self_matches`).
    """

    dropped: list[str] = field(default_factory=list)
    cut_short: list[CutShort] = field(default_factory=list)
    refused: dict[str, UsageError] = field(default_factory=dict)
    self_matching: set[str] = field(default_factory=set)


def ranked(
    index: Index, queries: Sequence[Query], options: RunOptions, report: BatchReport
) -> Iterator[tuple[Query, Sequence[Place]]]:
    """Rank the documents for each of many queries.

    Open the index with `Index.pinned`, so that all answers come from one generation, even if the alias moves.

    Args:
        index: The index.
        queries: Any number of queries.
        options: How documents are ranked, and how many workers search at once. At most about twice as many blocks as workers are in memory.
        report: Is filled with the notes on single queries.

    Yields:
        Each query with its ranked documents, best first, in the order of `queries`.
    """
    search = single_query.prepare(index.open_generation, index.name, options)
    plan = replace(search.plan, depth=max(options.candidates, options.k))

    def block(part: Sequence[Query]) -> list[Answered]:
        encoded = search.encode([query_text(query.text) for query in part])
        answers = []
        retrieve = partial(execution.retrieve, search.generation, search.target, plan=plan)
        retrieved, self_matching = self_matches.without_own(search.generation, part, retrieve(encoded), retrieve)
        report.self_matching.update(self_matching)
        for query, candidates in zip(part, retrieved, strict=True):
            report.dropped += [signal for signal, clause in candidates.clauses.items() if clause.dropped]
            if candidates.query.rewritten and (refusal := candidates.query.rewritten.refusal):
                report.refused[query.id] = refusal
            ranking = single_query.rank(search, plan, candidates, options.k)
            report.cut_short += ranking.cut_short
            answers.append(Answered(query.id, [ranking]))
        return answers

    answered = _in_order(block, in_parts(queries, QUERIES), options.workers)
    for each in search.features:
        answered = each.through(answered)
    for query, answer in zip(queries, answered, strict=True):
        yield query, answer.rounds[0].places[: options.k]


def _in_order(call: Callable[[_Part], list[_Answer]], parts: Iterable[_Part], workers: int) -> Iterator[_Answer]:
    """Call a function with each part, several parts at once in threads, and yield the answers in the order of the parts."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="termweave-search")
    waiting: deque[Future[list[_Answer]]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(call, part))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:  # if the caller stops early, stop the rest, too
        pool.shutdown(wait=True, cancel_futures=True)


def run(index: Index, queries: Mapping[str, str], options: RunOptions) -> Run:
    """Rank the documents for many queries, all in the generation that is open now.

    Args:
        index: The index.
        queries: Query id -> text.
        options: How documents are ranked.

    Returns:
        A run: the documents for each query, best first. A query without a hit, or with nothing but exclusions, has an empty ranking; a query that is
        a document of the index is ranked without this document (`Run.self_matches`).

    Raises:
        UsageError: As `Index.answer`.
    """
    if not isinstance(queries, Mapping):
        raise UsageError(f"Queries are a mapping, id -> text, not {type(queries).__name__}.", 'Write {"q1": "first query"}.')
    for query, text in queries.items():
        check_query(text)
        if not isinstance(query, str):
            raise UsageError(f"The id of a query is text, not {type(query).__name__}.", f"Write {str(query)!r}.")
    pinned = index.pin()
    mode, reranking = pinned.choose(options.mode, options.rerank, options.rerank_budget)
    report = BatchReport()
    rankings = ranked(pinned, [Query(query, text) for query, text in queries.items()], options, report)
    scores = {query.id: strictly_decreasing({place.id: place.score for place in places}) for query, places in rankings}
    return Run(
        options.name or (mode.name if reranking is None else f"{mode.name}+{reranking.name}"), scores, report.self_matching
    )
