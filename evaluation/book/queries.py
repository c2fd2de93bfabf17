"""The queries of a book: their ids, and the documents to judge, the best of every way to search, joined, so that no way is preferred.

The same words are one query, whatever their id in the file or log that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count
from typing import TYPE_CHECKING

from termweave.records import Query
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from termweave.evaluation.book.store import JudgementBook
    from termweave.search import Index

#: Documents that each way to search adds to a pool, and candidates of each signal.
DEPTH, _CANDIDATES = 10, 100


@dataclass(frozen=True, slots=True)
class BookQuery:
    """A query of a book.

    Attributes:
        id: Id of the query.
        text: Its words.
        pool: Ids of the documents to judge, sorted: the order says nothing about who found them.
    """

    id: str
    text: str
    pool: tuple[str, ...]


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
    """Add queries to a book with their pools, those whose words it has (`placed`) only once; one that lacks words gets them.

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


def placed(wanted: Iterable[Query], book: Sequence[BookQuery]) -> list[Query]:
    """Give queries the ids that the book has for their words.

    A query with new words keeps its id, unless another query has it: then a number is added. A query of the book that lacks words (see
    `lacks_words`) takes them from the first query with its id.

    Args:
        wanted: Queries with words.
        book: All queries of the book.

    Returns:
        As many queries as were wanted; two with the same words have the same id.
    """
    ids: dict[str, str] = {}
    for each in book:
        ids.setdefault(normal(each.text).strip(), each.id)
    taken = {each.id for each in book if not lacks_words(each)}
    queries = []
    for query in wanted:
        text = query.text.strip()
        if text not in ids:
            names = chain([query.id], (f"{query.id}-{number}" for number in count(2)))
            ids[text] = next(name for name in names if name not in taken)
            taken.add(ids[text])
        queries.append(Query(ids[text], text))
    return queries


def lacks_words(query: BookQuery) -> bool:
    """Whether only the id of a query is known, because its grades were imported without its text."""
    return query.text in ("", query.id)
