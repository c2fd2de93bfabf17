"""`/api/book`, `/api/grades` and `/api/judge`: the judged queries of an index as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from termweave.evaluation.book import agreement
from termweave.evaluation.book.store import check_judge
from termweave.ui.pages import judge_page
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


def book(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The queries with their pools, how far judges agree, and the guidelines."""
    name = workspace_of(request).alias(given["index"])
    stored = judge_page.book_of(request, name)
    grades = stored.grades()
    counts = Counter(each.query for each in grades if each.grade is not None)
    queries = [{"id": each.id, "text": each.text, "documents": each.pool, "grades": counts[each.id]} for each in stored.queries()]
    agreed = asdict(agreement.measure(grades)) if grades else None
    return {"index": name, "queries": queries, "agreement": agreed, "guidelines": stored.guidelines()}


def grades(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """What every judge said, with notes and times."""
    name = workspace_of(request).alias(given["index"])
    return {"index": name, "grades": [asdict(each) for each in judge_page.book_of(request, name).grades()]}


def judge(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """How far a judge is, and the document that comes next; not which search found it."""
    name, judge = workspace_of(request).alias(given["index"]), check_judge(given["judge"])
    task = judge_page.task_of(request, name, judge)
    card = task.card and {
        "query": task.card.query.text,
        "document": task.card.document,
        "title": task.card.title,
        "text": task.card.text,
    }
    return {"index": name, "judge": judge, "done": task.done, "documents": task.documents, "next": card}
