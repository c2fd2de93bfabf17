"""The ids of queries in a book: the same words are one query, whatever their id in the file or log that they come from."""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING

from termweave.records import Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from termweave.evaluation.book.store import BookQuery


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
        ids.setdefault(each.text.strip(), each.id)
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
