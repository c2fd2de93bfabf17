"""The page `/judge`: shows a judge one document at a time, but not which search found the document; grades are given by keyboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from termweave.errors import UsageError
from termweave.evaluation.book.store import (
    LONGEST_NOTE,
    BookGrade,
    BookQuery,
    JudgementBook,
    check_judge,
    order_for,
    placed,
    pooled,
)
from termweave.records import Query
from termweave.support.messages import clipped
from termweave.ui import parameters, searching
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.parameters import INDEX, JUDGE, Parameter
from termweave.ui.rendering import page, page_address, see_other
from termweave.ui.workspace import check_query, workspace_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request

    from termweave.search import Index

    #: Query and document -> the grade of one judge.
    _Grades = Mapping[tuple[str, str], BookGrade]

_PARAMETERS = (INDEX, replace(JUDGE, required=False), *(Parameter(name, f"Show this {name}.") for name in ("query", "document")))
#: What the grades mean.
MEANINGS = ("not relevant", "on the topic", "answers in part", "answers the query")


@dataclass(frozen=True)
class JudgingCard:
    """A document that a judge is asked to grade, with the query.

    Attributes:
        query: The query.
        document: Id of the document.
        title: Title of the document.
        text: Text of the document; "" if the index does not hold the document any more.
        metadata: The other fields of the document, as pairs of name and text.
        grade: The grade that the judge gave before; None: the judge gave none yet.
    """

    query: BookQuery
    document: str
    title: str
    text: str
    metadata: Sequence[tuple[str, str]]
    grade: BookGrade | None


@dataclass(frozen=True)
class JudgingTask:
    """The progress of one judge in a book.

    Attributes:
        documents: Number of documents to judge, counted for each query.
        done: How many of these documents the judge graded or skipped.
        grades: Grade -> number of documents to which the judge gave it; the grade None: skipped.
        card: The document to judge now; None: all documents are judged, or the judge has not given a name yet.
    """

    documents: int
    done: int
    grades: Counter[int | None]
    card: JudgingCard | None


def routes() -> list[Route]:
    """The routes of the page and of its forms."""
    forms = {"grade": _grade, "rate": _rate, "undo": _undo}
    return [Route("/judge", _show, methods=["GET"]), *(form_route(f"/judge/{name}", answer) for name, answer in forms.items())]


def _show(request: Request) -> Response:
    values, workspace = parameters.read(request.query_params, _PARAMETERS), workspace_of(request)
    book = workspace.book(values["index"])
    judge = values["judge"] and check_judge(values["judge"])
    task = task_of(workspace.index(book.name), book, judge, values["query"], values["document"])
    context = {"index": book.name, "judge": judge, "task": task, "guidelines": book.guidelines()}
    return page(request, "judge.html", {**context, "meanings": MEANINGS, "token": token, "longest_note": LONGEST_NOTE})


def task_of(
    index: Index, book: JudgementBook, judge: str | None, query: str | None = None, document: str | None = None
) -> JudgingTask:
    """The progress of a judge in the book of an index, and the document that comes next.

    Args:
        index: The index.
        book: The book of the index.
        judge: Name of the judge; None: the judge has not given a name yet.
        query: Id of the query whose documents are shown; None: of any query.
        document: Id of the document to show, whether it is judged or not; None: the next one without a grade.
    """
    queries = book.queries()
    mine = {(each.query, each.document): each for each in book.grades(judge)} if judge else {}
    return JudgingTask(
        documents=sum(len(each.pool) for each in queries),
        done=sum((each.id, candidate) in mine for each in queries for candidate in each.pool),
        grades=Counter(each.grade for each in mine.values()),
        card=_card(index, queries, mine, judge, query, document) if judge else None,
    )


def _card(
    index: Index, queries: Sequence[BookQuery], mine: _Grades, judge: str, query: str | None, document: str | None
) -> JudgingCard | None:
    """The document to show: the one that the request names, else the first one that this judge has not graded; None: there is no such document."""
    for each in queries:
        for candidate in order_for(judge, each) if query in {None, each.id} else ():
            if candidate == document if document is not None else (each.id, candidate) not in mine:
                title, text, metadata = searching.content_of(index, candidate)
                shown = searching.metadata_of(metadata)
                return JudgingCard(each, candidate, title, text, shown, mine.get((each.id, candidate)))
    return None


def _grade(request: Request, form: FormData) -> Response:
    name, judge = text_of(form, "index"), check_judge(text_of(form, "judge"))
    grade = _grade_of(form)
    book = JudgementBook(workspace_of(request).engine, name)
    query = query_of(book, form)
    document = next((each for each in query.pool if token(each) == text_of(form, "document")), None)
    if document is None:
        raise UsageError("This document is not among the documents to judge for the query.", "Open the page again.")
    book.set_grade(BookGrade(judge, query.id, document, grade, text_of(form, "note").strip()))
    return see_other("/judge", index=name, judge=judge)


def query_of(book: JudgementBook, form: FormData) -> BookQuery:
    """The query that a form is about.

    Raises:
        UsageError: The book does not have this query any more.
    """
    query = next((each for each in book.queries() if token(each.id) == text_of(form, "query")), None)
    if query is None:
        raise UsageError("The book does not have this query any more.", "Open the page again.")
    return query


def _grade_of(form: FormData) -> int | None:
    """The grade that a form gives, 0 to 3; None: the judge skipped the document."""
    grade = text_of(form, "grade")
    if grade not in {"0", "1", "2", "3", "skip"}:
        raise UsageError(f"{grade!r} is not a grade.", "Grades are 0, 1, 2, 3 and skip.")
    return None if grade == "skip" else int(grade)


def _rate(request: Request, form: FormData) -> Response:
    """Store the grade that a judge gave a hit on the search page. If the book lacks the query, or the document for this query, it is added first."""
    judge, grade = check_judge(text_of(form, "judge")), _grade_of(form)
    text, document = check_query(text_of(form, "q")).strip(), unquote(text_of(form, "document"))
    if not text:
        raise UsageError("The query is empty.", "Search for something, then rate what was found.")
    workspace = workspace_of(request)
    book, index = workspace.book(text_of(form, "index")), workspace.index(text_of(form, "index"))
    queries = book.queries()
    (typed,) = placed([typed_query(text)], queries)
    query = next((each for each in queries if each.id == typed.id), None)
    hides = book.name != index.lineage.name  # an alias: its generation would show what it hides
    searched = index if hides else workspace.index(text_of(form, "generation") or book.name)
    if searched is not index and searched.lineage.name != book.name:
        raise UsageError(f"{searched.generation!r} is not a generation of {book.name}.", "Search again and rate what is found.")
    if document not in (query.pool if query else ()) and searching.content_of(searched, document) == ("", "", {}):
        raise UsageError(f"{book.name} has no document {clipped(document)!r}.", "Search again and rate what is found.")
    if query is None:
        (query,) = pooled(index, [typed])
        book.add([query])
    if document not in query.pool:
        book.change(query.id, [document])
    book.set_grade(BookGrade(judge, query.id, document, grade), keep_note=True)
    rank = text_of(form, "rank")
    address = page_address("/search", parse_qsl(text_of(form, "back")))
    return RedirectResponse(f"{address}#hit-{rank if rank.isdecimal() else 1}", status_code=HTTPStatus.SEE_OTHER)


def typed_query(text: str) -> Query:
    """Make a query of a typed text, with an id that is a hash of the text."""
    return Query(f"t-{sha256(check_query(text).encode('utf-8', 'replace')).hexdigest()[:12]}", text)


def token(identity: str) -> str:
    """The hash that stands for an id in a form, because HTML cannot carry every character that an id may have."""
    return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _undo(request: Request, form: FormData) -> Response:
    name, judge = text_of(form, "index"), check_judge(text_of(form, "judge"))
    undone = JudgementBook(workspace_of(request).engine, name).undo(judge)
    shown = {"query": undone.query, "document": undone.document} if undone else {}
    return see_other("/judge", index=name, judge=judge, **shown)
