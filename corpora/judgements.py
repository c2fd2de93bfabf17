"""Read files of queries and judgements; the base class of data sets that have them.

A file of queries holds JSON lines as BEIR's ``queries.jsonl``, or lines of id, tab, text with an optional header line; its content tells which.
A table of judgements has BEIR's three columns or TREC's four (query, iteration, document, grade), perhaps below a header line; or a header line
names the columns, as in the CSV files of Quepid and of OpenSearch's Search Relevance (query, docid, rating).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, checked_id, identity, text_line, text_of
from termweave.corpora.readers.jsonl import parse
from termweave.errors import InputError, UsageError
from termweave.records import Qrels, Query
from termweave.support.messages import counted, few

#: Name of the file of queries in a BEIR folder.
QUERIES = "queries.jsonl"
_ID_KEYS = ("_id", "id", "qid", "query_id")
_TEXT_KEYS = ("text", "query", "question", "title")
_HEADER = re.compile(r"[A-Za-z].*")
_TABBED = "A line is: query id, tab, text; or one JSON object with _id and text."
_COLUMNS = "A judgement is: query id, tab, document id, tab, grade."
#: The largest grade: trec_eval allocates a counter for every grade, so that a timestamp in the wrong column would take all memory.
_LARGEST = 1_000_000
#: trec_eval takes whole grades: those of a table with fractions are multiplied by this, which leaves nDCG as it is.
_HUNDREDTHS = 100
#: Names of the columns of query, document and grade, without anything but letters; the best ones first.
_NAMES = (
    "queryid qid query querytext",
    "docid documentid corpusid document doc",
    "rating grade score relevance rel label judgment judgement",
)
_TREC_DL = re.compile(r"trec[-_ ]?dl|^dl[-_ ]?(20)?(19|2\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Judgements:
    """Queries with their judgements.

    Attributes:
        queries: The queries with at least one judgement, in the order of their file.
        qrels: The judgements of these queries.
        notes: Sentences about judgements that were left out, and about grades.
        factor: The number by which the grades of the file were multiplied to become whole numbers, 1 or 100.
    """

    queries: list[Query]
    qrels: Qrels
    notes: list[str] = field(default_factory=list)
    factor: int = 1


def joined(queries: Sequence[Query], qrels: Qrels, *, table: str, file: str) -> Judgements:
    """Join queries and judgements, and leave out judgements of unknown queries, with a note.

    Args:
        queries: Queries with judgements.
        qrels: The judgements of these queries, and perhaps of others.
        table: Name of the table of the judgements, for the note.
        file: Name of the file of the queries, for the note.
    """
    judged_queries = {query.id: qrels[query.id] for query in queries}
    lost = qrels.keys() - judged_queries.keys()
    count, on = counted(sum(len(qrels[query]) for query in lost), "judgement"), counted(len(lost), "query", "queries")
    return Judgements(list(queries), judged_queries, [f"{count} of {table} left out: on {on} that {file} lacks."] if lost else [])


class Judged:
    """Base class of data sets: the queries and judgements of one split, which subclasses provide as `_judged`.

    Attributes:
        split: Name of the split whose judgements are used.
    """

    JUDGED: ClassVar[bool] = True
    split: str

    @cached_property
    def _judged(self) -> Judgements:
        """The queries and judgements of the split."""
        raise NotImplementedError

    @property
    def notes(self) -> list[str]:
        """Sentences about judgements that were left out."""
        return self._judged.notes

    def queries(self) -> list[Query]:
        """The queries with judgements, in the order of their file."""
        return list(self._judged.queries)

    def qrels(self) -> Qrels:
        """The judgements of the queries in `queries`."""
        return self._judged.qrels


def relevant_from(*names: str) -> int:
    """Return the lowest relevant grade of a data set: 2 for those of TREC's deep learning track, whose grade 1 means "related, no answer"; else 1."""
    return 2 if any(map(_TREC_DL.search, names)) else 1


def query_id(text: str) -> str:
    """The id of a query in judgements and runs: a hash of its text, the same in every log."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def check_split(spec: str, split: str, splits: Sequence[str], advice: str = "") -> None:
    """Check that a data set has a split; `advice` is for one without any split.

    Raises:
        UsageError: The data set has no such split.
    """
    if split not in splits:
        raise UsageError(f"{spec} has no split {split!r}.", f"Its splits are: {few(splits, 12)}." if splits else advice)


def read_queries(spec: str) -> list[Query]:
    """Read all queries of a file, in the order of its lines.

    Args:
        spec: Path of a file, compressed or not, or of a BEIR folder; ``-`` for standard input.

    Raises:
        UsageError: The file does not exist.
        InputError: A line is not a query, or repeats an id. The message names the line.
    """
    if (copy := files.spooled(spec)) is not None:
        try:
            return _unique(copy, "standard input" if spec == "-" else spec)
        finally:
            files.discard(copy)
    path = Path(spec)
    if path.is_dir():
        path = files.plain_or_packed(path, QUERIES) or path / QUERIES
    if not path.is_file():
        raise UsageError(f"The file of queries {str(path)!r} does not exist.", _TABBED)
    return _unique(path, str(path))


def _unique(path: Path, name: str) -> list[Query]:
    """Read the queries of a file, and check that their ids are unique."""
    queries: list[Query] = []
    seen: dict[str, int] = {}
    for number, query in queries_in(path, name):
        if (before := seen.setdefault(query.id, number)) != number:
            raise BadLine(f"the id {query.id!r} is already on line {before}", "Give every query its own id.").at(name, number)
        queries.append(query)
    if not queries:
        raise InputError(f"{name} contains no query.", _TABBED)
    return queries


def read_judgements(table: Path, file: Path) -> Judgements:
    """Read a table of judgements, and from a file the queries that they judge.

    Raises:
        InputError: A line is not a query or a judgement, or two lines have the same id and different texts.
    """
    grades, ungraded = _grades(table)
    fractions = [grade for of in grades.values() for grade in of.values() if not grade.is_integer()]
    qrels = _whole(grades, factor := _HUNDREDTHS if fractions else 1)
    queries: dict[str, Query] = {}
    for number, query in queries_in(file, str(file)):
        if query.id not in qrels and query.text in qrels:  # Quepid writes the words of queries in place of ids
            qrels[query.id] = qrels.pop(query.text)
        if query.id in qrels and queries.setdefault(query.id, query) != query:
            raise BadLine(f"the query {query.id!r} is in the file twice, with different texts", "Keep one.").at(str(file), number)
    judgements = joined(list(queries.values()), qrels, table=str(table), file=str(file))
    if ungraded:
        judgements.notes.append(f"{counted(ungraded, 'line')} of {table} without a grade left out.")
    if fractions:
        judgements.notes.append(
            f"Grades of {table} have fractions and count in hundredths, {fractions[0]:g} as {factor * fractions[0]:.0f}: nDCG weighs them as they are, "
            "and MRR, recall and training take every grade above 0 for relevant."
        )
    return replace(judgements, factor=factor)


def queries_in(path: Path, name: str) -> Iterator[tuple[int, Query]]:
    """Yield the queries of a file with their line numbers, without a header line; messages call the file `name`.

    Raises:
        InputError: A line is not a query.
    """
    tabbed: bool | None = None
    for number, line in files.lines(path):
        first = tabbed is None
        if first:
            tabbed = not (line or b"").startswith((b"{", b"["))
        try:
            query = _tabbed_query(line) if tabbed else _json_query(line)
        except BadLine as bad:
            raise bad.at(name, number, skips=False) from None
        if not (first and tabbed and query.id.lower() in {*_ID_KEYS, "query-id"} and query.text.lower() in _TEXT_KEYS):
            yield number, query


def _tabbed_query(line: bytes | None) -> Query:
    """Read the query on a line of id, tab, text."""
    identity, tab, query = text_line(line, _TABBED).partition("\t")
    if not tab or not identity.strip():
        raise BadLine("an id, a tab and a text are expected", _TABBED)
    return Query(checked_id(identity.strip()), query.strip())


def _json_query(line: bytes | None) -> Query:
    """Read the query on a line of JSON.

    Raises:
        BadLine: The line is not a query.
    """
    entry = parse(line)
    id_, text = identity(entry, _ID_KEYS), text_of(entry, _TEXT_KEYS)
    if id_ is None or text is None:
        missing, keys = ("id", _ID_KEYS) if id_ is None else ("text", _TEXT_KEYS)
        raise BadLine(f"a query without {missing}, which is one of the fields {', '.join(map(repr, keys))}", "Correct the line.")
    return Query(id_, text)


def read_qrels(path: Path) -> Qrels:
    """Read the judgements of a table whose grades are whole numbers.

    Raises:
        InputError: A line has other columns, a grade is not a whole number, or a pair has two different grades.
    """
    return _whole(_grades(path, whole=True)[0], 1)


def _whole(grades: Mapping[str, Mapping[str, float]], factor: int) -> Qrels:
    return {query: {document: round(factor * grade) for document, grade in of.items()} for query, of in grades.items()}


def _grades(path: Path, *, whole: bool = False) -> tuple[dict[str, dict[str, float]], int]:
    """Read the grades of a table, by query and document, and count its lines without a grade."""
    grades: dict[str, dict[str, float]] = {}
    places: tuple[int, ...] = (0, -2, -1)
    counts: tuple[int, ...] = (3, 4)
    ungraded = 0
    for position, (number, line) in enumerate(files.lines(path)):
        try:
            columns = _columns(line)
            if position == 0 and (header := _places(columns)):
                places, counts = header, (len(columns),)
                continue
            query, document, grade = _judgement(columns, places, counts)
            if position == 0 and _HEADER.fullmatch(grade):
                continue
            counts = (len(columns),)  # with blanks as separators, an id with a blank would look like another column
            value = _grade(grade, whole=whole) if grade else None
        except BadLine as bad:
            raise bad.at(str(path), number, skips=False) from None
        if value is None:
            ungraded += 1
        elif grades.setdefault(query, {}).setdefault(document, value) != value:
            reason = f"the document {document!r} is judged twice for the query {query!r}, with different grades"
            raise BadLine(reason, "Keep one of the two.").at(str(path), number)
    return grades, ungraded


def _columns(line: bytes | None) -> list[str]:
    """Split a line into columns: at tabs, else at commas or semicolons if the last column then has no blank, else at blanks."""
    text = text_line(line, _COLUMNS)
    mark = next((mark for mark in ",;" if text.count(mark) > 1 and " " not in text.rpartition(mark)[2].strip()), "")
    if "\t" in text or not mark:
        return text.split("\t" if "\t" in text else None)  # with tabs, ids may contain blanks
    return next(csv.reader([text], delimiter=mark))


def _places(header: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the columns that a header line names as query, document and grade; (): the line lacks one of the three."""
    names = [re.sub(r"[^a-z]", "", cell.lower()) for cell in header]
    places = tuple(next((names.index(name) for name in usual.split() if name in names), -1) for usual in _NAMES)
    return () if -1 in places else places


def _judgement(columns: Sequence[str], places: Sequence[int], counts: tuple[int, ...]) -> list[str]:
    """Return query, document and grade of a line, whose number of columns must be one of `counts`."""
    if len(columns) not in counts:
        expected = "3 (or TREC's 4) should be" if counts[1:] else f"the first judgement has {counts[0]}"
        raise BadLine(f"{counted(len(columns), 'column')} where {expected}", _COLUMNS)
    return [checked_id(columns[place].strip()) for place in places]


def _grade(grade: str, *, whole: bool) -> float:
    """Parse a grade; with `whole` it must be a whole number, such as 1 or 1.0."""
    try:
        number = float(grade)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (whole and not number.is_integer()):
        raise BadLine(f"the grade {grade!r} is not a {'whole ' * whole}number", _COLUMNS)
    if abs(number) > _LARGEST:
        raise BadLine(f"the grade {grade!r} is larger than {_LARGEST:,}", f"{_COLUMNS} Check the order of the columns.")
    return number
