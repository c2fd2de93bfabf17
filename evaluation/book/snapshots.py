"""Snapshots: the lists that the queries of a book found at a time, to see later what moved. They lie in the book's index."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.evaluation.book.store import JudgementBook
    from termweave.search import Index

#: Documents of each list, and queries and snapshots of a book.
DEPTH, QUERIES, MOST = 50, 1_000, 100
_KIND = "snapshot"


@dataclass(frozen=True)
class SnapshotListing:
    """A snapshot without its lists.

    Attributes:
        id: Its key.
        at: When it was taken, UTC, ISO 8601.
        generation: The generation that was searched.
        mode: The mode, and after a plus sign the reranker.
        queries: How many lists it has.
    """

    id: str
    at: str
    generation: str
    mode: str
    queries: int


@dataclass(frozen=True)
class ListSnapshot(SnapshotListing):
    """The lists of a time.

    Attributes:
        lists: Query id -> document ids, best first.
        texts: Query id -> text.
    """

    lists: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, str]


def take(book: JudgementBook, index: Index, mode: str | None = None, rerank: str | None = None) -> ListSnapshot:
    """Search the queries of a book and store the lists.

    Raises:
        UsageError: The book has no query, or too many snapshots.
    """
    queries = book.queries()[:QUERIES]
    if not queries:
        raise UsageError(f"The book of {book.name} has no queries.", "Add some on the page Book.")
    if len(snapshots(book)) >= MOST:
        raise UsageError(f"The book of {book.name} has {MOST} snapshots.", "Remove one.")
    run = index.run({query.id: query.text for query in queries}, mode=mode, rerank=rerank, k=DEPTH)
    name = f"{mode or 'default'}{f' + {rerank}' if rerank else ''}"
    taken = ListSnapshot(
        id=secrets.token_hex(6),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        generation=index.generation,
        mode=name,
        queries=len(queries),
        lists={query.id: tuple(run.scores[query.id]) for query in queries},
        texts={query.id: query.text for query in queries},
    )
    lists = [{"query": query.id, "text": query.text, "documents": taken.lists[query.id]} for query in queries]
    book.store(_KIND, taken.id, {"at": taken.at, "generation": taken.generation, "mode": taken.mode, "lists": lists})
    return taken


def snapshots(book: JudgementBook) -> list[SnapshotListing]:
    """The snapshots of a book, the newest first. Their lists are not read: all of them may be more than an answer can hold."""
    stored = book.entries(_KIND, ["at", "query"], order="desc", without=["lists.documents", "lists.text"])
    return [SnapshotListing(**_listing(each)) for each in stored]


def read(book: JudgementBook, key: str) -> ListSnapshot:
    """A snapshot with its lists.

    Raises:
        UsageError: There is none with this key.
    """
    if (stored := book.entry(_KIND, key)) is None:
        raise UsageError(f"There is no snapshot {key!r}.", "Choose two of the list.")
    lists = stored.get("lists") or []
    return ListSnapshot(
        **_listing(stored),
        lists={each["query"]: tuple(each["documents"]) for each in lists},
        texts={each["query"]: each["text"] for each in lists},
    )


def remove(book: JudgementBook, key: str) -> None:
    """Remove a snapshot, if it is there."""
    book.remove(_KIND, key)


def _listing(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a `SnapshotListing`."""
    return {
        "id": str(stored["query"]),
        **{name: str(stored.get(name, "")) for name in ("at", "generation", "mode")},
        "queries": len(stored.get("lists") or ()),
    }
