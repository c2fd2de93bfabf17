"""`/book`: the queries of a book and how far judges agree; adding queries, guidelines, import and export."""

from __future__ import annotations

import math
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response
from starlette.routing import Route

from termweave.corpora.judgements import read_qrels, read_queries
from termweave.errors import UsageError
from termweave.evaluation.book import agreement
from termweave.evaluation.book.queries import add, lacks_words, placed, pooled
from termweave.evaluation.measures import per_query
from termweave.records import Query
from termweave.support import private_files
from termweave.support.messages import clipped, few
from termweave.ui import parameters
from termweave.ui.addresses import see_other
from termweave.ui.pages.forms import bytes_of, form_route, named, text_of
from termweave.ui.pages.judge_page import book_of, book_to_fill, token, typed_query
from termweave.ui.parameters import INDEX, Parameter
from termweave.ui.rendering import page
from termweave.ui.workspace import check_query, workspace_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.datastructures import FormData
    from starlette.requests import Request

    from termweave.evaluation.book.queries import BookQuery
    from termweave.evaluation.book.store import BookGrade, JudgementBook
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
    """A query of the book: how many documents have a grade, the grades with notes, and nDCG@10 of the search of now (None: not measured)."""

    query: BookQuery
    judged: int
    notes: Sequence[BookGrade]
    score: float | None


def routes() -> list[Route]:
    """The page, its forms and its files."""
    return [
        Route("/book", _show, methods=["GET"]),
        Route("/book/qrels.tsv", _qrels, methods=["GET"]),
        Route("/book/queries.jsonl", _queries, methods=["GET"]),
        Route("/book/grades.jsonl", _grades, methods=["GET"]),
        form_route("/book/add", _add),
        form_route("/book/edit", _edit),
        form_route("/book/remove", _remove),
        form_route("/book/guidelines", _guidelines),
        form_route("/book/import", _import),
    ]


def _show(request: Request) -> Response:
    values = parameters.read(request.query_params, _PARAMETERS)
    workspace = workspace_of(request)
    name = workspace.alias(values["index"])
    book = book_of(request, name)
    grades = book.grades()
    rows = _rows(book.queries(), grades, _scores(workspace.index(name), book) if values["scores"] else {})
    scored = [row.score for row in rows if row.score is not None]
    context = {
        "index": name,
        "rows": rows,
        "mean": sum(scored) / len(scored) if scored else None,
        "scored": len(scored),
        "most": _MOST_SCORED,
        "token": token,
        "agreement": agreement.measure(grades) if grades else None,
        "guidelines": book.guidelines(),
        "added": values["added"],
        "imported": values["imported"],
        "wordless": sum(lacks_words(row.query) for row in rows),
    }
    return page(request, "book.html", context)


def _rows(queries: Sequence[BookQuery], grades: Sequence[BookGrade], scores: Mapping[str, float]) -> list[QueryRow]:
    """The queries of a book with what is known of each, the lowest score first where there are scores."""
    judged = Counter(query for query, _ in {(each.query, each.document) for each in grades if each.grade is not None})
    notes: defaultdict[str, list[BookGrade]] = defaultdict(list)
    for grade in grades:
        if grade.note:
            notes[grade.query].append(grade)
    rows = [QueryRow(each, judged[each.id], notes[each.id], scores.get(each.id)) for each in queries]
    return sorted(rows, key=lambda row: math.inf if row.score is None else row.score)


def _scores(index: Index, book: JudgementBook) -> dict[str, float]:
    """nDCG@10 of the default search for the first judged queries of a book: query id -> value."""
    qrels = book.qrels()
    texts = {each.id: each.text for each in book.queries() if qrels.get(each.id)}
    ids = list(texts)[:_MOST_SCORED]
    if not ids:
        return {}
    run = index.run({key: texts[key] for key in ids}, k=_RANKS)
    name = f"nDCG@{_RANKS}"
    values = per_query(run, {key: qrels[key] for key in ids}, ids, measures=(name,))[name]
    return dict(zip(ids, map(float, values), strict=True))


def _of_form(book: JudgementBook, form: FormData) -> BookQuery:
    """The query that a form is about.

    Raises:
        UsageError: The book does not have it.
    """
    query = next((each for each in book.queries() if token(each.id) == text_of(form, "query")), None)
    if query is None:
        raise UsageError("The book does not have this query any more.", "Open the page Book again.")
    return query


def _edit(request: Request, form: FormData) -> Response:
    """Change the words of a query: what the new words find is judged, too, and grades stay."""
    name, book = text_of(form, "index"), book_to_fill(request, form)
    text = check_query(text_of(form, "text")).strip()
    if not text:
        raise UsageError("The query is empty.", "Type its words, or remove it.")
    query = _of_form(book, form)
    if text != query.text:
        if any(each.text == text for each in book.queries()):
            raise UsageError("The book has a query with these words.", "Remove one of the two, or type other words.")
        (query_with_pool,) = pooled(workspace_of(request).index(name), [Query(query.id, text)])
        book.change(query.id, query_with_pool.pool, text=text)
    return see_other("/book", index=name)


def _remove(request: Request, form: FormData) -> Response:
    book = book_to_fill(request, form)
    book.remove_query(_of_form(book, form).id)
    return see_other("/book", index=text_of(form, "index"))


def _add(request: Request, form: FormData) -> Response:
    name = text_of(form, "index")
    typed = [line.strip() for line in text_of(form, "typed").splitlines() if line.strip()]
    texts, uploaded = list(dict.fromkeys(typed)), _queries_of(bytes_of(form, "file"), "The file")
    if not (count := len(texts) + len(uploaded)):
        raise UsageError("There is no query to add.", "Type one on each line, or choose a file.")
    if count > _MOST:
        raise UsageError(f"These are {count:,} queries.", f"Add at most {_MOST:,} at once.")
    book = book_to_fill(request, form)
    known = book.queries()
    ids = {query.id for query in known}
    if other := [
        query.id
        for query, place in zip(uploaded, placed(uploaded, known), strict=True)
        if query.id in ids and place.id not in ids
    ]:
        raise UsageError(
            f"The book has other words for {few(other)}.",
            "Give these queries other ids in the file, or edit their words in the book.",
        )
    added = add(workspace_of(request).index(name), book, [*map(typed_query, texts), *uploaded])
    return see_other("/book", index=name, added=added)


def _guidelines(request: Request, form: FormData) -> Response:
    book_to_fill(request, form).set_guidelines(text_of(form, "guidelines").strip())
    return see_other("/book", index=text_of(form, "index"))


def _import(request: Request, form: FormData) -> Response:
    """Grades of a file, as those of one judge. A query without a text is the query of the book with its id."""
    name, book = text_of(form, "index"), book_to_fill(request, form)
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        path = Path(folder) / "qrels.tsv"
        path.write_bytes(bytes_of(form, "qrels"))
        with named(path):
            qrels = read_qrels(path)
    texts = _queries_of(text_of(form, "texts").encode("utf-8", "replace"), "The list of queries")
    stored = book.import_qrels(text_of(form, "judge"), texts, qrels)
    return see_other("/book", index=name, imported=stored)


def _queries_of(content: bytes, called: str) -> Sequence[Query]:
    """Queries in one of the formats of `search --queries`.

    Raises:
        InputError: A line is not a query.
        UsageError: A query has no text.
    """
    if not content.strip():
        return []
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        path = Path(folder) / "queries"
        path.write_bytes(content)
        with named(path, called=called):
            queries = read_queries(str(path))
    if empty := [query.id for query in queries if not query.text.strip()]:
        raise UsageError(f"{called} has no text for {few(empty)}.", "A line is: query id, tab, text.")
    return queries


def _qrels(request: Request) -> Response:
    """The median of the judges' grades as BEIR writes it, which trec_eval's format is one column away from.

    Raises:
        UsageError: An id would begin another column or row.
    """
    qrels = _book(request).qrels()
    for name in {*qrels, *(document for judged in qrels.values() for document in judged)}:
        if "\t" in name or len(f"{name}.".splitlines()) > 1:
            raise UsageError(
                f"The id {clipped(name)!r} holds a tab or a line end, which this format has no way to write.",
                "Download grades.jsonl: JSON writes every id.",
            )
    lines = [
        f"{query}\t{document}\t{grade}\n" for query, judged in sorted(qrels.items()) for document, grade in sorted(judged.items())
    ]
    return _file("query-id\tcorpus-id\tscore\n" + "".join(lines), "qrels.tsv", "text/tab-separated-values")


def _queries(request: Request) -> Response:
    lines = [orjson.dumps({"_id": query.id, "text": query.text}).decode() for query in _book(request).queries()]
    return _file("".join(f"{line}\n" for line in lines), "queries.jsonl", "application/jsonl")


def _grades(request: Request) -> Response:
    """Every judge's grades, with notes and times."""
    lines = [orjson.dumps(asdict(each)).decode() for each in _book(request).grades()]
    return _file("".join(f"{line}\n" for line in lines), "grades.jsonl", "application/jsonl")


def _book(request: Request) -> JudgementBook:
    values = parameters.read(request.query_params, (INDEX,))
    return book_of(request, workspace_of(request).alias(values["index"]))


def _file(text: str, name: str, kind: str) -> Response:
    return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
