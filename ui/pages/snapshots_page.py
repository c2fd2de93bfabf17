"""`/snapshots`: what the queries of the book find now is kept, and two such times are compared query by query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from termweave.evaluation.book import snapshots
from termweave.ui import parameters
from termweave.ui.addresses import see_other
from termweave.ui.comparison import ListComparison, compare
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.pages.judge_page import book_of
from termweave.ui.rendering import page
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.evaluation.book.snapshots import SnapshotListing
    from termweave.evaluation.book.store import JudgementBook


@dataclass(frozen=True)
class SnapshotRow:
    """A query that two snapshots have, and how its lists differ."""

    text: str
    comparison: ListComparison

    @property
    def moved(self) -> list[tuple[int | None, int | None, str]]:
        """The documents of either head with their two ranks, where these differ; None: not in that list."""
        ranks = self.comparison.first, self.comparison.second
        heads = [document for each in ranks for document, rank in each.items() if rank <= self.comparison.head]
        rows = [(ranks[0].get(document), ranks[1].get(document), document) for document in dict.fromkeys(heads)]
        return [row for row in rows if row[0] != row[1]]


def routes() -> list[Route]:
    """The page and its forms."""
    return [
        Route("/snapshots", _show, methods=["GET"]),
        form_route("/snapshots/take", _take),
        form_route("/snapshots/remove", _remove),
    ]


def compared(book: JudgementBook, values: Mapping[str, Any]) -> tuple[list[SnapshotListing], list[SnapshotRow], list[str]]:
    """All snapshots of a book, and the queries of the two that a request names, those that changed most first.

    The third value names the queries that are left out: only one snapshot has them, or their words changed in between.

    Raises:
        UsageError: There is no such snapshot, or only one is named.
    """
    taken = snapshots.snapshots(book)
    if not values["first"] and not values["second"]:
        return taken, [], []
    first, second = (snapshots.read(book, values[name] or "") for name in ("first", "second"))
    rows = [
        SnapshotRow(second.texts[query], compare(first.lists[query], second.lists[query]))
        for query in second.lists
        if first.texts.get(query) == second.texts[query]
    ]
    texts = ([each.texts[query] for each in (first, second) if query in each.texts] for query in {**first.texts, **second.texts})
    left_out = [" → ".join(each) for each in texts if each[1:] != each[:1]]
    return taken, sorted(rows, key=lambda row: (row.comparison.shared - row.comparison.head, _tau(row.comparison))), left_out


def _tau(comparison: ListComparison) -> float:
    return 1.0 if comparison.correlation is None else comparison.correlation


def _show(request: Request) -> Response:
    values = parameters.read(request.query_params, parameters.SNAPSHOTS)
    name = workspace_of(request).alias(values["index"])
    book = book_of(request, name)
    taken, rows, left_out = compared(book, values)
    context = {
        "index": name,
        "taken": taken,
        "values": values,
        "rows": rows,
        "left_out": left_out,
        "changed": sum(bool(row.moved) for row in rows),
        "queries": len(book.queries()),
    }
    return page(request, "snapshots.html", context)


def _take(request: Request, form: FormData) -> Response:
    workspace = workspace_of(request)
    name = text_of(form, "index")
    mode, rerank = text_of(form, "mode").strip() or None, text_of(form, "rerank").strip() or None
    workspace.check_reranker(rerank)
    snapshots.take(book_of(request, name), workspace.index(name), mode, rerank)
    return see_other("/snapshots", index=name)


def _remove(request: Request, form: FormData) -> Response:
    name = text_of(form, "index")
    snapshots.remove(book_of(request, name), text_of(form, "snapshot"))
    return see_other("/snapshots", index=name)
