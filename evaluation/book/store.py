"""The book of an index: its queries, the documents to judge, and each judge's grades.

Everything lies in the hidden index ``termweave-book``: one document for each query, and one for each judge, query and document. So two
judges who grade at the same time never write the same document, and no grade is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
from statistics import median_low
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import EngineError, UsageError
from termweave.search.catalog.lineage import check_one, create_hidden_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from termweave.engine import Engine
    from termweave.records import Qrels, Query

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
#: Entries of one answer, and how often a change of a query is tried while others change it.
_PAGE, _TRIES = 5_000, 100


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


@dataclass(frozen=True, slots=True)
class BookGrade:
    """What one judge says of one document for one query.

    Attributes:
        judge: Name of the judge.
        query: Id of the query.
        document: Id of the document.
        grade: 0 to 3; None: skipped.
        note: A remark.
        at: When, UTC, ISO 8601.
    """

    judge: str
    query: str
    document: str
    grade: int | None
    note: str = ""
    at: str = ""


class JudgementBook:
    """The book of an index.

    Args:
        engine: The server.
        name: Name of the index that the book is about.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        check_one(name)
        self.engine, self.name = engine, name

    def add(self, queries: Sequence[BookQuery]) -> int:
        """Add queries after those of the book; a query whose id is there already stays as it is.

        Returns:
            How many were added.
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
        """All queries, in the order in which they were added."""
        entries = self._read([{"term": {"kind": "query"}}], ["number", "query"])
        return [BookQuery(each["query"], each["text"], tuple(each["pool"])) for each in entries]

    def change(self, key: str, pool: Iterable[str] = (), **fields: str) -> None:
        """Add documents to the pool that a query has now, and change its other fields; of two who do so at once neither loses anything.

        It keeps its id and its grades.

        Raises:
            UsageError: The book does not have the query any more.
        """
        path, more = f"/{INDEX}/_update/{self._id('query', key)}", set(pool)
        for left in reversed(range(_TRIES)):
            if (hit := self._hit("query", key)) is None:
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
        """Remove a query with all of its grades, if it is there."""
        body = {
            "query": {
                "bool": {
                    "filter": [{"term": {"book": self.name}}, {"term": {"query": key}}, {"terms": {"kind": ["query", "grade"]}}]
                }
            }
        }
        params = {"refresh": True, "ignore_unavailable": True, "conflicts": "proceed"}
        self.engine.request("POST", f"/{INDEX}/_delete_by_query", params=params, body=body)

    def set_grade(self, given: BookGrade) -> None:
        """Store a grade in place of an earlier one of the same judge.

        Raises:
            UsageError: The grade, the name or the note cannot be used, or the book does not ask about this document.
        """
        if given.grade not in (*GRADES, None):
            raise UsageError(f"{given.grade!r} is not a grade.", f"Grades are {', '.join(map(str, GRADES))}.")
        check_judge(given.judge)
        if len(given.note) > LONGEST_NOTE:
            raise UsageError(f"The note has more than {LONGEST_NOTE:,} characters.", "Write a shorter one.")
        if given.document not in (self.entry("query", given.query) or {"pool": ()})["pool"]:
            raise UsageError("The book does not ask about this document.", "Add it to the pool of the query.")
        self._put_grades([given])

    def undo(self, judge: str) -> BookGrade | None:
        """Take the latest grade of a judge back, and return it; None if there is none."""
        filters = [{"term": {"kind": "grade"}}, {"term": {"judge": judge}}]
        latest = next(self._read(filters, ["at", "query", "document"], order="desc", most=1), None)
        if latest is None:
            return None
        grade = _grade(latest)
        path = f"/{INDEX}/_doc/{self._id('grade', grade.judge, grade.query, grade.document)}"
        self.engine.request("DELETE", path, params={"refresh": True})
        return grade

    def grades(self, judge: str | None = None) -> list[BookGrade]:
        """All grades, or those of one judge, skipped documents included."""
        mine = [] if judge is None else [{"term": {"judge": judge}}]
        return [_grade(each) for each in self._read([{"term": {"kind": "grade"}}, *mine], ["query", "document", "judge"])]

    def qrels(self) -> Qrels:
        """Query -> document -> the median of the judges' grades, the lower one of two. What all judges skipped is left out."""
        given: dict[tuple[str, str], list[int]] = {}
        for each in self.grades():
            if each.grade is not None:
                given.setdefault((each.query, each.document), []).append(each.grade)
        qrels: Qrels = {}
        for (query, document), grades in given.items():
            qrels.setdefault(query, {})[document] = median_low(grades)
        return qrels

    def import_qrels(self, judge: str, queries: Sequence[Query], qrels: Qrels) -> int:
        """Add judged queries, with the judged documents as their pools and the grades as those of one judge.

        Returns:
            How many grades were stored.

        Raises:
            UsageError: A grade is above 3, or there is none.
        """
        check_judge(judge)
        if not qrels:
            raise UsageError("There is no grade to import.", "A line is: query id, tab, document id, tab, grade.")
        highest = max((grade for grades in qrels.values() for grade in grades.values()), default=0)
        if highest > GRADES[-1]:
            raise UsageError(f"The highest grade is {highest}.", f"Grades of a book are 0 to {GRADES[-1]}.")
        texts = {query.id: query.text for query in queries}
        known = {query.id: query for query in self.queries()}
        self.add(
            [BookQuery(query, texts.get(query, query), tuple(sorted(qrels[query]))) for query in qrels if query not in known]
        )
        for query in (known[name] for name in qrels if name in known):
            self.change(query.id, qrels[query.id])
        grades = [
            BookGrade(judge, query, document, max(0, grade))
            for query, judged in qrels.items()
            for document, grade in judged.items()
        ]
        self._put_grades(grades)
        return len(grades)

    def guidelines(self) -> str:
        """What judges should keep in mind; "" for nothing."""
        return str(next(self._read([{"term": {"kind": "guidelines"}}], ["query"]), {}).get("text", ""))

    def set_guidelines(self, text: str) -> None:
        """Store the guidelines."""
        if len(text) > LONGEST_GUIDELINES:
            raise UsageError(f"The guidelines have more than {LONGEST_GUIDELINES:,} characters.", "Write shorter ones.")
        create_hidden_index(self.engine, INDEX, _MAPPING)
        body = {"kind": "guidelines", "book": self.name, "query": "", "text": text}
        self.engine.request("PUT", f"/{INDEX}/_doc/{self._id('guidelines')}", params={"refresh": True}, body=body)

    def entries(
        self, kind: str, by: Sequence[str], *, order: str = "asc", without: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """The stored entries of another kind that lies in the book, in the order of the fields `by`, and without the fields `without`."""
        return self._read([{"term": {"kind": kind}}], by, order=order, without=without)

    def entry(self, kind: str, key: str) -> dict[str, Any] | None:
        """One entry by its kind and key; None if it is not there."""
        hit = self._hit(kind, key)
        return None if hit is None else dict(hit["_source"])

    def store(self, kind: str, key: str, entry: dict[str, Any]) -> None:
        """Store an entry of another kind under a key of the caller's; fields besides those of the mapping are kept, not searched."""
        create_hidden_index(self.engine, INDEX, _MAPPING)
        body = {"kind": kind, "book": self.name, "query": key, **entry}
        self.engine.request("PUT", f"/{INDEX}/_doc/{self._id(kind, key)}", params={"refresh": True}, body=body)

    def remove(self, kind: str, key: str) -> None:
        """Remove such an entry, if it is there."""
        try:
            self.engine.request("DELETE", f"/{INDEX}/_doc/{self._id(kind, key)}", params={"refresh": True})
        except EngineResponseError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _put_grades(self, grades: Sequence[BookGrade]) -> None:
        create_hidden_index(self.engine, INDEX, _MAPPING)
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        lines: list[dict[str, Any]] = []
        for each in grades:
            lines += [
                {"index": {"_index": INDEX, "_id": self._id("grade", each.judge, each.query, each.document)}},
                {
                    "kind": "grade",
                    "book": self.name,
                    "judge": each.judge,
                    "query": each.query,
                    "document": each.document,
                    "grade": each.grade,
                    "note": each.note,
                    "at": at,
                },
            ]
        for place in range(0, len(lines), _PAGE):
            self._write(lines[place : place + _PAGE], "grades")

    def _write(self, lines: Sequence[dict[str, Any]], what: str) -> list[int]:
        """Send actions and documents as one `_bulk` request, and return the status of each document.

        Raises:
            EngineResponseError: A document was refused. One that is there already (409) was not.
        """
        import orjson  # noqa: PLC0415 - only where something is written

        body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        answer = self.engine.request("POST", "/_bulk", params={"refresh": True}, body=body)
        outcomes = [outcome for item in answer["items"] for outcome in item.values()]
        for status, each in ((outcome["status"], outcome) for outcome in outcomes):
            if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.CONFLICT:
                reason = f"{what} of the book were refused: {(each.get('error') or {}).get('reason', 'no reason given')}"
                lacks = "The role of this user lacks a permission that docs/permissions.md lists."
                raise EngineResponseError(
                    status, reason, answer, hint=lacks if status == HTTPStatus.FORBIDDEN else "Do it again."
                )
        return [outcome["status"] for outcome in outcomes]

    def _hit(self, kind: str, key: str) -> dict[str, Any] | None:
        """The hit of an entry, with its version; None if it is not there."""
        return next(self._hits([{"term": {"kind": kind}}, {"term": {"query": key}}], ["query"], most=1), None)

    def _read(self, filters: Sequence[dict[str, Any]], by: Sequence[str], **options: Any) -> Iterator[dict[str, Any]]:
        """The sources of `_hits`."""
        return (hit["_source"] for hit in self._hits(filters, by, **options))

    def _hits(
        self,
        filters: Sequence[dict[str, Any]],
        by: Sequence[str],
        *,
        order: str = "asc",
        most: int | None = None,
        without: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """Entries in an order that distinguishes all of them, page by page."""
        body: dict[str, Any] = {
            "size": min(_PAGE, most or _PAGE),
            "_source": {"excludes": list(without)},
            "seq_no_primary_term": True,
            "query": {"bool": {"filter": [{"term": {"book": self.name}}, *filters]}},
            "sort": [{name: {"order": order, "unmapped_type": "keyword"}} for name in by],
            "track_total_hits": False,
        }
        while True:
            answer = self.engine.request(
                "POST", f"/{INDEX}/_search", params={"ignore_unavailable": True, **ALL_SHARDS}, body=body
            )
            hits = answer["hits"]["hits"]
            yield from hits
            if most is not None or len(hits) < body["size"]:
                return
            if hits[-1]["sort"] == body.get("search_after"):
                raise EngineError(
                    f"{self.engine.url} gave the same page twice.", "Look at what stands between, a proxy for example."
                )
            body["search_after"] = hits[-1]["sort"]

    def _id(self, *parts: str) -> str:
        """The id of an entry, whatever characters its parts have."""
        return sha256("\0".join((self.name, *parts)).encode("utf-8", "surrogatepass")).hexdigest()


def check_judge(name: str) -> str:
    """A name that a judge may have.

    Raises:
        UsageError: It is empty or too long.
    """
    if not name.strip() or len(name) > LONGEST_NAME:
        raise UsageError("A judge needs a name.", f"Give one of at most {LONGEST_NAME} characters.")
    return name


def _grade(stored: dict[str, Any]) -> BookGrade:
    """A stored grade. Anyone who may write to the index can have written it: what is not a grade counts as skipped."""
    texts = {name: str(stored.get(name, "")) for name in ("judge", "query", "document", "note", "at")}
    grade = stored.get("grade")
    return BookGrade(**texts, grade=grade if isinstance(grade, int) and grade in GRADES else None)
