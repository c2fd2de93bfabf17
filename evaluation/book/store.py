"""The book of an index: its queries, the documents to judge, and each judge's grades.

The documents to judge are the best of every way to search, joined, so that no way is preferred. The same words are one query, whatever their
id in the file or log that they come from. Everything lies in the hidden index ``termweave-book``: one document for each query, and one for each
judge, query and document. So two judges who grade at the same time never write the same document, and no grade is lost.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from itertools import chain, count
from statistics import median_low
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog.lineage import check_one, create_hidden_index
from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import EngineError, UsageError
from termweave.records import Qrels, Query
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.search import Index

INDEX = "termweave-book"
#: Grades from "not relevant" to "answers the query".
GRADES = (0, 1, 2, 3)
#: Characters of a judge's name, of a note, and of the guidelines.
LONGEST_NAME, LONGEST_NOTE, LONGEST_GUIDELINES = 100, 2_000, 20_000
_KEYWORD = {"type": "keyword"}
_MAPPING = {
    "dynamic": False,
    "properties": {
        **dict.fromkeys(("kind", "book", "query", "judge", "document"), _KEYWORD),
        "number": {"type": "long"},
        "at": {"type": "date_nanos"},
    },
}
#: What changes where a grade is replaced, and how many earlier ones it keeps.
_CHANGES, _REPLACED = ("grade", "note", "at"), 10
#: Entries of one answer, and how often a change of a query is tried while others change it.
_PAGE, _TRIES = 5_000, 100

#: Documents that each way to search adds to a pool, and candidates of each signal.
DEPTH, _CANDIDATES = 10, 100


@dataclass(frozen=True, slots=True)
class BookQuery:
    """A query of a book.

    Attributes:
        id: Id of the query.
        text: Words of the query.
        pool: Ids of the documents to judge, sorted, so that the order does not tell which search found them.
    """

    id: str
    text: str
    pool: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BookGrade:
    """The grade that one judge gives one document for one query.

    Attributes:
        judge: Name of the judge.
        query: Id of the query.
        document: Id of the document.
        grade: 0 to 3; None: the judge skipped the document.
        note: A remark of the judge.
        at: Time at which the grade was stored, UTC, ISO 8601.
    """

    judge: str
    query: str
    document: str
    grade: int | None
    note: str = ""
    at: str = ""


class JudgementBook:
    """The stored book of an index: its queries, grades and guidelines.

    Args:
        engine: The server.
        name: Name of the index that the book is about.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        check_one(name)
        self.engine, self.name = engine, name

    def add(self, queries: Sequence[BookQuery]) -> int:
        """Add queries after those of the book; a query whose id the book has already stays as it is.

        Returns:
            How many queries were added.
        """
        if not queries:
            return 0
        create_hidden_index(self.engine, INDEX, _MAPPING)
        at = datetime.now(UTC)
        lines: list[dict[str, Any]] = []
        for place, query in enumerate(queries):
            number = int(at.timestamp() * 1e6) + place
            lines += [
                {"create": {"_index": INDEX, "_id": self._id("query", query.id)}},
                {"kind": "query", "book": self.name, "query": query.id, "text": query.text, "pool": query.pool, "number": number},
            ]
        return self._write(lines, "queries").count(HTTPStatus.CREATED)

    def queries(self) -> list[BookQuery]:
        """Return all queries of the book, in the order in which they were added."""
        entries = self.entries("query", ["number", "query"])
        return [BookQuery(each["query"], each["text"], tuple(each["pool"])) for each in entries]

    def change(self, key: str, pool: Iterable[str] = (), **fields: str) -> None:
        """Add documents to the pool of a query, and change other fields of this query; changes that two people make at once are both kept.

        The query keeps its id and its grades.

        Raises:
            UsageError: The book does not have the query any more.
        """
        path, more = f"/{INDEX}/_update/{self._id('query', key)}", set(pool)
        for left in reversed(range(_TRIES)):
            if (hit := self._query(key)) is None:
                raise UsageError("The book does not have this query any more.", "Open the page Book again.")
            only = {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
            changed = {**fields, "pool": sorted({*hit["_source"]["pool"], *more})}
            try:
                self.engine.request("POST", path, params={"refresh": True, **only}, body={"doc": changed})
            except EngineResponseError as error:
                if error.status != HTTPStatus.CONFLICT or not left:
                    raise
            else:
                return

    def remove_query(self, key: str) -> None:
        """Remove a query, if the book has it, and only then all of its grades, so that `set_grade` sees that the query is gone."""
        self._delete("query", key)
        body = {"query": self._clause(query=key, kind="grade")}
        params = {"refresh": True, "ignore_unavailable": True, "conflicts": "proceed"}
        self.engine.request("POST", f"/{INDEX}/_delete_by_query", params=params, body=body)

    def set_grade(self, grade: BookGrade, *, keep_note: bool = False) -> None:
        """Store a grade in place of an earlier grade of the same judge; with `keep_note` the note of the earlier grade stays.

        Raises:
            UsageError: The grade, the name or the note cannot be used, or the book does not ask about this document.
        """
        if grade.grade not in (*GRADES, None):
            raise UsageError(f"{grade.grade!r} is not a grade.", f"Grades are {', '.join(map(str, GRADES))}.")
        grade = replace(grade, judge=check_judge(grade.judge))
        if len(grade.note) > LONGEST_NOTE:
            raise UsageError(f"The note has more than {LONGEST_NOTE:,} characters.", "Write a shorter one.")
        self._check_pool(grade)
        self._put_grades([grade], keep_notes=keep_note)
        try:
            self._check_pool(grade)
        except UsageError:  # the query was removed meanwhile, perhaps after its grades were looked for
            self._delete("grade", grade.judge, grade.query, grade.document)
            raise

    def undo(self, judge: str) -> BookGrade | None:
        """Take back the latest grade of a judge, and return it; the grade that it replaced counts again. None: the judge has no grade."""
        by = ["at", "query", "document"]
        latest = next(self.entries("grade", by, order="desc", most=1, judge=check_judge(judge)), None)
        if latest is None:
            return None
        grade, replaced = _grade(latest), _replaced(latest)
        key = ("grade", grade.judge, grade.query, grade.document)
        if replaced:
            self._put(key, {**latest, **replaced.pop(), "replaced": replaced})
        else:
            self._delete(*key)
        return grade

    def grades(self, judge: str | None = None) -> list[BookGrade]:
        """Return all grades of the book, or the grades of one judge, skipped documents included."""
        mine = {} if judge is None else {"judge": check_judge(judge)}
        return [_grade(each) for each in self.entries("grade", ["query", "document", "judge"], **mine)]

    def qrels(self) -> Qrels:
        """Return query -> document -> median of the judges' grades (of two middle grades the lower); documents that all judges skipped are left out."""
        graded: dict[tuple[str, str], list[int]] = {}
        stored = self.grades()
        ids = {each.id for each in self.queries()}  # read later, so that no grade is of a query that was added in between
        for each in stored:
            if each.grade is not None and each.query in ids:
                graded.setdefault((each.query, each.document), []).append(each.grade)
        qrels: Qrels = {}
        for (query, document), grades in graded.items():
            qrels.setdefault(query, {})[document] = median_low(grades)
        return qrels

    def import_qrels(self, judge: str, queries: Sequence[Query], qrels: Qrels) -> int:
        """Add judged queries to the book: their judged documents become the pools, the grades become those of one judge, whose notes stay.

        A query with the words of a query in the book is merged with it (`placed`); a query without a text is merged with the one of the same id.
        From two queries with the same words, a document gets the higher grade.

        Returns:
            How many grades were stored.

        Raises:
            UsageError: A grade is above 3, or `qrels` has no grade.
        """
        judge = check_judge(judge)
        if not qrels:
            raise UsageError("The file has no grade to import.", "Write lines: query id, tab, document id, tab, grade.")
        highest = max((grade for grades in qrels.values() for grade in grades.values()), default=0)
        if highest > GRADES[-1]:
            raise UsageError(f"The highest grade is {highest}.", f"Grades of a book are 0 to {GRADES[-1]}.")
        book = {query.id: query for query in self.queries()}
        words = [query for query in queries if query.id in qrels and query.text.strip()]
        places = {query.id: place for query, place in zip(words, placed(words, [*book.values()]), strict=True)}
        merged: Qrels = {}
        for key, judged in qrels.items():
            grades = merged.setdefault(places[key].id if key in places else key, {})
            grades.update({document: max(0, grade, grades.get(document, 0)) for document, grade in judged.items()})
        texts = {query.id: query.text for query in places.values()}
        for key in merged.keys() & book.keys():
            self.change(key, merged[key], **({"text": texts[key]} if key in texts else {}))
        self.add([BookQuery(key, texts.get(key, key), tuple(sorted(merged[key]))) for key in merged if key not in book])
        stored = [BookGrade(judge, key, document, grade) for key, judged in merged.items() for document, grade in judged.items()]
        self._put_grades(stored, keep_notes=True)
        return len(stored)

    def guidelines(self) -> str:
        """Return the guidelines for judges; "": the book has no guidelines."""
        return str(next(self.entries("guidelines", ["query"]), {}).get("text", ""))

    def set_guidelines(self, text: str) -> None:
        """Store the guidelines."""
        if len(text) > LONGEST_GUIDELINES:
            raise UsageError(f"The guidelines have more than {LONGEST_GUIDELINES:,} characters.", "Write shorter ones.")
        create_hidden_index(self.engine, INDEX, _MAPPING)
        self._put(("guidelines",), {"kind": "guidelines", "book": self.name, "query": "", "text": text})

    def entries(self, kind: str, by: Sequence[str], **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the stored entries of a kind ("query", "grade", "guidelines"), sorted by the fields `by`; options as for `_hits`."""
        return (hit["_source"] for hit in self._hits(kind, by, **options))

    def _check_pool(self, grade: BookGrade) -> None:
        query = self._query(grade.query)
        if query is None or grade.document not in query["_source"]["pool"]:
            raise UsageError("The book does not ask about this document.", "Add the document to the pool of the query.")

    def _put(self, key: Sequence[str], entry: dict[str, Any]) -> None:
        self.engine.request("PUT", f"/{INDEX}/_doc/{self._id(*key)}", params={"refresh": True}, body=entry)

    def _delete(self, *key: str) -> None:
        try:
            self.engine.request("DELETE", f"/{INDEX}/_doc/{self._id(*key)}", params={"refresh": True})
        except EngineResponseError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _put_grades(self, grades: Sequence[BookGrade], *, keep_notes: bool = False) -> None:
        """Store grades of one judge; each new entry keeps the latest of the grades that it replaces."""
        create_hidden_index(self.engine, INDEX, _MAPPING)
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        for place in range(0, len(grades), _PAGE // 2):
            part = grades[place : place + _PAGE // 2]
            queries = list({each.query for each in part})
            before = self.entries("grade", ["query", "document"], judge=part[0].judge, query=queries)
            stored = {(entry["query"], entry["document"]): entry for entry in before}
            lines: list[dict[str, Any]] = []
            for each in part:
                entry = stored.get((each.query, each.document))
                note = _grade(entry).note if entry and keep_notes else each.note
                replaced = [*_replaced(entry), {name: entry.get(name) for name in _CHANGES}][-_REPLACED:] if entry else []
                lines += [
                    {"index": {"_index": INDEX, "_id": self._id("grade", each.judge, each.query, each.document)}},
                    {"kind": "grade", "book": self.name, **asdict(each), "note": note, "at": at, "replaced": replaced},
                ]
            self._write(lines, "grades")

    def _write(self, lines: Sequence[dict[str, Any]], kind: str) -> list[int]:
        """Send actions and documents as one `_bulk` request, and return the status of each document.

        Raises:
            EngineResponseError: A document was refused; a document that exists already (409) does not count as refused.
        """
        body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        answer = self.engine.request("POST", "/_bulk", params={"refresh": True}, body=body)
        outcomes = [outcome for item in answer["items"] for outcome in item.values()]
        for each in outcomes:
            status = each["status"]
            if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.CONFLICT:
                reason = f"{kind} of the book were refused: {(each.get('error') or {}).get('reason', 'no reason given')}"
                lacks = "The role of this user lacks a permission that docs/permissions.md lists."
                raise EngineResponseError(status, reason, answer, hint=lacks if status == HTTPStatus.FORBIDDEN else "Try again.")
        return [outcome["status"] for outcome in outcomes]

    def _query(self, key: str) -> dict[str, Any] | None:
        """Fetch the search hit of a query, with its version; None: the book does not have the query."""
        return next(self._hits("query", ["query"], most=1, query=key), None)

    def _clause(self, **terms: str | list[str]) -> dict[str, Any]:
        """Make the query clause for entries of this book whose fields have the given value, or one of several given values."""
        fields = {"book": self.name, **terms}.items()
        return {"bool": {"filter": [{"terms" if isinstance(value, list) else "term": {name: value}} for name, value in fields]}}

    def _hits(
        self, kind: str, by: Sequence[str], *, order: str = "asc", most: int | None = None, **terms: str | list[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield search hits of entries whose fields have the values `terms`, page by page; the fields `by` must order the entries without ties."""
        body: dict[str, Any] = {
            "size": min(_PAGE, most or _PAGE),
            "seq_no_primary_term": True,
            "query": self._clause(kind=kind, **terms),
            "sort": [{name: {"order": order, "unmapped_type": "keyword"}} for name in by],
            "track_total_hits": False,
        }
        while True:
            params = {"ignore_unavailable": True, **ALL_SHARDS}
            hits = self.engine.request("POST", f"/{INDEX}/_search", params=params, body=body)["hits"]["hits"]
            yield from hits
            if most is not None or len(hits) < body["size"]:
                return
            if hits[-1]["sort"] == body.get("search_after"):
                hint = "Check what stands between termweave and the server, such as a proxy."
                raise EngineError(f"{self.engine.url} gave the same page of judgements twice.", hint)
            body["search_after"] = hits[-1]["sort"]

    def _id(self, *parts: str) -> str:
        """Make the id of an entry from its parts, whatever characters these have."""
        return sha256("\0".join((self.name, *parts)).encode("utf-8", "surrogatepass")).hexdigest()


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
    pools = ({each for run in runs.values() for each in list(run.scores[query.id])[:DEPTH]} for query in queries)
    return [BookQuery(query.id, query.text, tuple(sorted(pool))) for query, pool in zip(queries, pools, strict=True)]


def add(index: Index, book: JudgementBook, queries: Sequence[Query]) -> int:
    """Add queries with their pools to a book. Queries with the same words are added once (`placed`); a query of the book that lacks words gets them.

    Returns:
        How many queries are new, or have words now.
    """
    before = {each.id: each for each in book.queries()}
    queries = list(dict.fromkeys(placed(queries, [*before.values()])))
    new = pooled(index, [each for each in queries if each.id not in before or before[each.id].text.strip() != each.text])
    for each in new:
        if each.id in before:
            book.change(each.id, each.pool, text=each.text)
    return book.add(new) + sum(each.id in before for each in new)


def order_for(judge: str, query: BookQuery) -> list[str]:
    """Return the pool of a query in a random order, which differs from judge to judge and is the same each time for one judge."""
    return sorted(query.pool, key=lambda each: sha256(f"{judge}\0{query.id}\0{each}".encode("utf-8", "surrogatepass")).digest())


def placed(queries: Iterable[Query], book: Sequence[BookQuery]) -> list[Query]:
    """Give queries the ids that the book has for their words.

    A query with new words keeps its id, unless another query has it: then a number is added. A query of the book that lacks words (see
    `lacks_words`) takes them from the first query with its id.

    Args:
        queries: Queries with words.
        book: All queries of the book.

    Returns:
        The same number of queries, in the same order; two queries with the same words have the same id.
    """
    ids: dict[str, str] = {}
    for each in book:
        ids.setdefault(normal(each.text).strip(), each.id)
    taken = {each.id for each in book if not lacks_words(each)}
    renamed = []
    for query in queries:
        text = query.text.strip()
        if text not in ids:
            names = chain([query.id], (f"{query.id}-{number}" for number in count(2)))
            ids[text] = next(name for name in names if name not in taken)
            taken.add(ids[text])
        renamed.append(Query(ids[text], text))
    return renamed


def lacks_words(query: BookQuery) -> bool:
    """Whether only the id of a query is known, because its grades were imported without its text."""
    return query.text in ("", query.id)


def check_judge(name: str) -> str:
    """Return the name of a judge in the form in which it is stored: without blanks around it, its accents composed (NFC).

    Raises:
        UsageError: The name is empty or too long.
    """
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name) > LONGEST_NAME:
        raise UsageError(f"The name of a judge has 1 to {LONGEST_NAME} characters.", "Give another name.")
    return name


def _grade(stored: dict[str, Any]) -> BookGrade:
    """Read a stored grade. Anyone who may write to the index can have written the entry, so a value that is no grade counts as skipped."""
    texts = {name: str(stored.get(name) or "") for name in ("judge", "query", "document", "note", "at")}
    grade = stored.get("grade")
    return BookGrade(**texts, grade=grade if isinstance(grade, int) and grade in GRADES else None)


def _replaced(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the grades that a stored grade replaced, the latest last; values that are no objects, which anyone can have written, are left out."""
    replaced = stored.get("replaced")
    return [each for each in replaced if isinstance(each, dict)] if isinstance(replaced, list) else []
