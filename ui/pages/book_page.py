"""The page `/book`: the judged queries of an index (its book), how far judges agree, adding queries, guidelines, import and export."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response
from starlette.routing import Route

from termweave.corpora.judgements import read_qrels, read_queries
from termweave.errors import UsageError
from termweave.evaluation.book import agreement
from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook, add, lacks_words, placed, pooled
from termweave.evaluation.measures import per_query
from termweave.records import Query
from termweave.support.messages import clipped, few
from termweave.ui import parameters
from termweave.ui.pages.forms import bytes_of, form_route, text_of, uploaded
from termweave.ui.pages.judge_page import query_of, token, typed_query
from termweave.ui.parameters import INDEX, Parameter
from termweave.ui.rendering import page, see_other
from termweave.ui.workspace import Workspace, check_query, workspace_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request

    from termweave.search import Index

#: Queries that are added at once: each is searched in every way.
_MOST = 1_000
#: Queries that are scored while the page waits, and ranks of the measure.
_MOST_SCORED, _RANKS = 200, 10
_PARAMETERS = (
    INDEX,
    Parameter("added", "Queries that were added.", "count"),
    Parameter("imported", "Grades that were imported.", "count"),
    Parameter("scores", "1: search the judged queries and score each.", "flag"),
)


@dataclass(frozen=True)
class QueryRow:
    """A row of the page: a query, how many documents have a grade for it, the grades with notes, and nDCG@10 of a search now (None: not measured)."""

    query: BookQuery
    judged: int
    notes: Sequence[BookGrade]
    score: float | None


def routes() -> list[Route]:
    """The routes of the page, of its forms and of the files that it offers for download."""
    return [
        Route("/book", _show, methods=["GET"]),
        _download("qrels.tsv", "text/tab-separated-values", _qrels),
        _download(
            "queries.jsonl", "application/jsonl", lambda book: (_json({"_id": q.id, "text": q.text}) for q in book.queries())
        ),
        _download("grades.jsonl", "application/jsonl", lambda book: map(_json, map(asdict, book.grades()))),
        _form("add", _add),
        _form("edit", _edit),
        _form("remove", lambda _, book, form: book.remove_query(query_of(book, form).id)),
        _form("guidelines", lambda _, book, form: book.set_guidelines(text_of(form, "guidelines").strip())),
        _form("import", _import),
    ]


def _form(name: str, change: Callable[[Workspace, JudgementBook, FormData], dict[str, int] | None]) -> Route:
    """Make the route of a form that changes the book by `change`; the counts that `change` returns become parameters of the page that follows."""

    def answer(request: Request, form: FormData) -> Response:
        workspace, index = workspace_of(request), text_of(form, "index")
        return see_other("/book", index=index, **(change(workspace, workspace.book(index), form) or {}))

    return form_route(f"/book/{name}", answer)


def _download(name: str, kind: str, lines: Callable[[JudgementBook], Iterable[str]]) -> Route:
    """Make the route of a download: a text file whose lines are made from the book."""

    def answer(request: Request) -> Response:
        book = workspace_of(request).book(parameters.read(request.query_params, (INDEX,))["index"])
        text = "".join(f"{line}\n" for line in lines(book))
        return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})

    return Route(f"/book/{name}", answer, methods=["GET"])


def _show(request: Request) -> Response:
    values, workspace = parameters.read(request.query_params, _PARAMETERS), workspace_of(request)
    book = workspace.book(values["index"])
    grades = book.grades()
    rows = _rows(book.queries(), grades, _scores(workspace.index(book.name), book) if values["scores"] else {})
    scored = [row.score for row in rows if row.score is not None]
    context = {
        **values,
        "index": book.name,
        "rows": rows,
        "mean": sum(scored) / len(scored) if scored else None,
        "scored": len(scored),
        "most": _MOST_SCORED,
        "token": token,
        "agreement": agreement.measure(grades) if grades else None,
        "guidelines": book.guidelines(),
        "wordless": sum(lacks_words(row.query) for row in rows),
    }
    return page(request, "book.html", context)


def _rows(queries: Sequence[BookQuery], grades: Sequence[BookGrade], scores: Mapping[str, float]) -> list[QueryRow]:
    """The rows of the page, one for each query; with scores the query with the lowest score comes first."""
    judged = Counter(query for query, _ in {(each.query, each.document) for each in grades if each.grade is not None})
    notes: defaultdict[str, list[BookGrade]] = defaultdict(list)
    for grade in grades:
        if grade.note:
            notes[grade.query].append(grade)
    rows = [QueryRow(each, judged[each.id], notes[each.id], scores.get(each.id)) for each in queries]
    return sorted(rows, key=lambda row: math.inf if row.score is None else row.score)


def _scores(index: Index, book: JudgementBook) -> dict[str, float]:
    """Search the first 200 judged queries of a book as by default, and return query id -> nDCG@10."""
    qrels = book.qrels()
    texts = {each.id: each.text for each in book.queries() if qrels.get(each.id)}
    ids = list(texts)[:_MOST_SCORED]
    if not ids:
        return {}
    run = index.run({key: texts[key] for key in ids}, k=_RANKS)
    name = f"nDCG@{_RANKS}"
    values = per_query(run, {key: qrels[key] for key in ids}, ids, measures=(name,))[name]
    return dict(zip(ids, map(float, values), strict=True))


def _edit(workspace: Workspace, book: JudgementBook, form: FormData) -> None:
    """Change the words of a query: documents that the new words find are added for judging, and grades stay."""
    text = check_query(text_of(form, "text")).strip()
    if not text:
        raise UsageError("The query is empty.", "Type the words of the query, or remove the query.")
    query = query_of(book, form)
    if text != query.text:
        if any(each.text == text for each in book.queries()):
            raise UsageError("The book already has a query with these words.", "Remove one of the two, or type other words.")
        (query_with_pool,) = pooled(workspace.index(text_of(form, "index")), [Query(query.id, text)])
        book.change(query.id, query_with_pool.pool, text=text)


def _add(workspace: Workspace, book: JudgementBook, form: FormData) -> dict[str, int]:
    typed = [line.strip() for line in text_of(form, "typed").splitlines() if line.strip()]
    texts, uploaded = list(dict.fromkeys(typed)), _queries_of(bytes_of(form, "file"), "The file")
    if not (count := len(texts) + len(uploaded)):
        raise UsageError("There is no query to add.", "Type one query on each line, or choose a file.")
    if count > _MOST:
        raise UsageError(f"You gave {count:,} queries.", f"Add at most {_MOST:,} at once.")
    queries = book.queries()
    ids, places = {query.id for query in queries}, placed(uploaded, queries)
    if other := [each.id for each, place in zip(uploaded, places, strict=True) if each.id in ids and place.id not in ids]:
        raise UsageError(f"The book has other words for {few(other)}.", "Give these queries other ids, or edit them in the book.")
    index = workspace.index(text_of(form, "index"))
    return {"added": add(index, book, [*map(typed_query, texts), *uploaded])}


def _import(_: Workspace, book: JudgementBook, form: FormData) -> dict[str, int]:
    """Import the grades of a file under the name of one judge. Where the upload has no text for a query id, the query of the book with this id counts."""
    with uploaded(bytes_of(form, "qrels")) as path:
        qrels = read_qrels(path)
    texts = _queries_of(text_of(form, "texts").encode("utf-8", "replace"), "The list of queries")
    return {"imported": book.import_qrels(text_of(form, "judge"), texts, qrels)}


def _queries_of(content: bytes, called: str) -> Sequence[Query]:
    """Read queries from the content of a file, in one of the formats of `search --queries`; `called` names the file in errors.

    Raises:
        InputError: A line is not a query.
        UsageError: A query has no text.
    """
    if not content.strip():
        return []
    with uploaded(content, called) as path:
        queries = read_queries(str(path))
    if empty := [query.id for query in queries if not query.text.strip()]:
        raise UsageError(f"{called} has no text for {few(empty)}.", "A line is: query id, tab, text.")
    return queries


def _qrels(book: JudgementBook) -> Iterator[str]:
    """Yield the lines of a qrels file in BEIR's format, with the median of the judges' grades (trec_eval's format has one more column).

    Raises:
        UsageError: An id holds a tab or a line end, which would begin another column or row.
    """
    yield "query-id\tcorpus-id\tscore"
    for query, judged in sorted(book.qrels().items()):
        for document, grade in sorted(judged.items()):
            if name := next((each for each in (query, document) if "\t" in each or len(f"{each}.".splitlines()) > 1), None):
                message = f"The id {clipped(name)!r} holds a tab or a line end, which this format cannot write."
                raise UsageError(message, "Download grades.jsonl: JSON writes every id.")
            yield f"{query}\t{document}\t{grade}"


def _json(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values).decode()
