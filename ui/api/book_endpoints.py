"""`/api/book`, `/api/grades` and `/api/judge`: the judged queries of an index as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from termweave.evaluation.book import agreement
from termweave.ui import parameters
from termweave.ui.pages import judge_page, snapshots_page
from termweave.ui.parameters import read
from termweave.ui.rendering import data

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def book(request: Request) -> Response:
    """`book/1`: the queries with their pools, how far judges agree, and the guidelines."""
    name = _name(request)
    stored = judge_page.book_of(request, name)
    grades = stored.grades()
    counts = Counter(each.query for each in grades if each.grade is not None)
    queries = [{"id": each.id, "text": each.text, "documents": each.pool, "grades": counts[each.id]} for each in stored.queries()]
    agreed = asdict(agreement.measure(grades)) if grades else None
    answer = {"schema": "termweave.book/1", "index": name, "queries": queries, "agreement": agreed}
    return data(answer | {"guidelines": stored.guidelines()})


def grades(request: Request) -> Response:
    """`grades/1`: what every judge said, with notes and times."""
    name = _name(request)
    given = [asdict(each) for each in judge_page.book_of(request, name).grades()]
    return data({"schema": "termweave.grades/1", "index": name, "grades": given})


def judge(request: Request) -> Response:
    """`judge/1`: how far a judge is, and the document that comes next; not which search found it."""
    values = read(request.query_params, parameters.JUDGE)
    workspace = request.app.state.workspace
    name = workspace.index(workspace.chosen(values["index"])).lineage.name
    task = judge_page.task_of(request, name, values["judge"])
    card = task.card and {
        "query": task.card.query.text,
        "document": task.card.document,
        "title": task.card.title,
        "text": task.card.text,
    }
    answer = {"schema": "termweave.judge/1", "index": name, "judge": values["judge"]}
    return data(answer | {"done": task.done, "documents": task.documents, "next": card})


def snapshots(request: Request) -> Response:
    """`snapshots/1`: the saved lists of a book, and how two of them differ."""
    values = read(request.query_params, parameters.SNAPSHOTS)
    workspace = request.app.state.workspace
    name = workspace.index(workspace.chosen(values["index"])).lineage.name
    taken, rows = snapshots_page.compared(judge_page.book_of(request, name), values)
    listed = [
        {"id": each.id, "at": each.at, "generation": each.generation, "mode": each.mode, "queries": len(each.lists)}
        for each in taken
    ]
    compared = [{"query": row.text, **row.comparison.as_dict()} for row in rows]
    return data({"schema": "termweave.snapshots/1", "index": name, "snapshots": listed, "compared": compared})


def _name(request: Request) -> str:
    """The name of the index, without a generation."""
    values = read(request.query_params, parameters.BOOK)
    workspace = request.app.state.workspace
    return str(workspace.index(workspace.chosen(values["index"])).lineage.name)
