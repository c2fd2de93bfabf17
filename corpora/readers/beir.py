"""Read BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``, each plain, ``.gz`` or ``.zst``.

A folder with only a corpus is a source; with queries and judgements it is a data set. Judgements may also have TREC's four columns
(query, iteration, document, grade). A header line is optional in both.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, checked_id, identity, text_line, text_of
from termweave.corpora.judgements import Judged, Judgements, joined
from termweave.corpora.readers.jsonl import JsonLines, parse
from termweave.corpora.sources import DEFAULT_SPLIT, Derived, OpenedSource, Reader
from termweave.errors import UsageError
from termweave.records import Qrels, Query
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
QUERY_ID_KEYS = ("_id", "id", "qid", "query_id")
QUERY_TEXT_KEYS = ("text", "query", "question", "title")

_TABLE = re.compile(r"(?P<split>.+)\.tsv(\.gz|\.zst)?")
_HEADER = re.compile(r"[A-Za-z].*")
_COLUMNS = "A judgement is: query id, tab, document id, tab, grade."
#: The largest grade: trec_eval allocates a counter for every grade, so that a timestamp in the wrong column would take all memory.
_LARGEST = 1_000_000
_TREC_DL = re.compile(r"trec[-_ ]?dl|^dl[-_ ]?(20)?(19|2\d)", re.IGNORECASE)


def folders_in(folder: Path) -> list[str]:
    """Sorted names of the BEIR folders in a folder."""
    inside = (path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    return sorted(path.name for path in inside if files.plain_or_packed(path, CORPUS) is not None)


class BeirFolder(Judged, Derived, OpenedSource, Reader):
    """A BEIR folder: a `Dataset`, and the reader that recognises it.

    Its fingerprint is that of the corpus file, because new judgements do not change the index.
    """

    LABEL: ClassVar[str] = "a BEIR folder"
    MAPPED: ClassVar[bool] = True

    def __init__(self, folder: Path, split: str = DEFAULT_SPLIT, reading: Reading | None = None) -> None:
        corpus = files.plain_or_packed(folder, CORPUS)
        if corpus is None:
            raise UsageError(f"{folder} contains no {CORPUS}, compressed or not.", "Name a BEIR folder, or a file.")
        self._folder = folder
        self._corpus = JsonLines(corpus, reading)
        super().__init__(self._corpus)
        self.split = split
        self._name = (reading and reading.name) or folder.resolve().name

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """A folder that holds a corpus."""
        return files.plain_or_packed(Path(spec), CORPUS) is not None

    @classmethod
    def open(cls, spec: str, reading: Reading) -> BeirFolder:
        """Open the folder as a source of documents. It need not have judgements.

        Raises:
            UsageError: The corpus is a link to a file outside the folder, and links are not to be followed.
        """
        source = cls(Path(spec), reading=reading)
        target = source._corpus.path.resolve()
        if not reading.follow_links and source._corpus.path.is_symlink() and not target.is_relative_to(Path(spec).resolve()):
            raise UsageError(
                f"{source._corpus.path} is a link to a file outside its folder: {target}.",
                "If you trust this link, add --follow-links.",
            )
        return source

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BeirFolder:
        """Open the folder as a data set.

        Raises:
            UsageError: The folder has no queries, or the split does not exist.
        """
        dataset = cls(Path(spec), split)
        if files.plain_or_packed(dataset._folder, QUERIES) is None:
            hint = f"Put queries and {QRELS}/{split}.tsv beside {CORPUS}."
            raise UsageError(f"{spec} contains no {QUERIES}, compressed or not: it is a corpus, not a data set.", hint)
        if split not in (known := dataset.splits()):
            hint = f"There are: {', '.join(known)}." if known else f"Put judgements into {QRELS}/{split}.tsv."
            raise UsageError(f"{spec} has no split {split!r}.", hint)
        return dataset

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self._name

    @property
    def remarks(self) -> list[str]:
        """Remarks of the corpus file, if the user named fields: a BEIR folder has fixed ones."""
        return self._corpus.remarks if self._corpus.reading.fields.named() else []

    @property
    def relevant_from(self) -> int:
        """The lowest relevant grade; see the function `relevant_from`."""
        return relevant_from(self.name, self.split)

    @cached_property
    def unjudged(self) -> int:
        """Number of queries without a judgement in the split."""
        judged = self._judged.qrels.keys()
        path = files.plain_or_packed(self._folder, QUERIES)
        return len({query_of(line).id for _, line in files.lines(path)} - judged) if path else 0

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read the documents of the corpus; see `JsonLines.documents`."""
        return self._corpus.documents(progress)

    def splits(self) -> list[str]:
        """Sorted names of the splits: the tables in ``qrels/``."""
        folder = self._folder / QRELS
        matches = (_TABLE.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        return sorted({match["split"] for match in matches if match})

    @cached_property
    def _judged(self) -> Judgements:
        table = files.plain_or_packed(self._folder / QRELS, f"{self.split}.tsv")
        path = files.plain_or_packed(self._folder, QUERIES)
        if table is None or path is None:
            hint = f"There are: {', '.join(self.splits()) or 'none'}."
            raise UsageError(f"{self._folder} has no queries with judgements for the split {self.split!r}.", hint)
        qrels = read_qrels(table)
        return joined(read_queries(path, qrels), qrels, table=str(table), file=str(path))


def relevant_from(*names: str) -> int:
    """The lowest relevant grade: 2 for data sets of TREC's deep learning track, whose grade 1 means "related, no answer"; else 1."""
    return 2 if any(map(_TREC_DL.search, names)) else 1


def read_queries(path: Path, wanted: Qrels) -> list[Query]:
    """Read the queries of a file that have judgements.

    Raises:
        InputError: A line is not a query, or two lines have the same id and different texts.
    """
    queries: dict[str, Query] = {}
    for number, line in files.lines(path):
        try:
            query = query_of(line)
        except BadLine as bad:
            raise bad.at(str(path), number, skips=False) from None
        if query.id in wanted and queries.setdefault(query.id, query) != query:
            reason = f"the query {query.id!r} is in the file twice, with different texts"
            raise BadLine(reason, "Keep one of the two.").at(str(path), number)
    return list(queries.values())


def query_of(line: bytes | None) -> Query:
    """Read the query on a line of JSON.

    Raises:
        BadLine: The line is not a query.
    """
    entry = parse(line)
    id_, text = identity(entry, QUERY_ID_KEYS), text_of(entry, QUERY_TEXT_KEYS)
    if id_ is None or text is None:
        missing, keys = ("id", QUERY_ID_KEYS) if id_ is None else ("text", QUERY_TEXT_KEYS)
        raise BadLine(f"a query without {missing}; its usual names are {', '.join(map(repr, keys))}", "Correct the line.")
    return Query(id_, text)


def read_qrels(path: Path) -> Qrels:
    """Read the judgements of a table with BEIR's three columns or TREC's four.

    Raises:
        InputError: A line has other columns, a grade is not a whole number, or a pair has two different grades.
    """
    qrels: Qrels = {}
    counts: tuple[int, ...] = (3, 4)
    for position, (number, line) in enumerate(files.lines(path)):
        try:
            query, *_, document, grade = columns = _columns(line, counts)
            if position == 0 and _HEADER.fullmatch(grade):
                continue
            counts = (len(columns),)  # with blanks as separators, an id with a blank would look like another column
            value = _grade(grade)
        except BadLine as bad:
            raise bad.at(str(path), number) from None
        if qrels.setdefault(query, {}).setdefault(document, value) != value:
            reason = f"the document {document!r} is judged twice for the query {query!r}, with different grades"
            raise BadLine(reason, "Keep one of the two.").at(str(path), number)
    return qrels


def _columns(line: bytes | None, counts: tuple[int, ...]) -> list[str]:
    """The columns of a line: the query first, document and grade last."""
    text = text_line(line, _COLUMNS)
    columns = text.split("\t") if "\t" in text else text.split()  # with tabs, ids may contain blanks
    if len(columns) not in counts:
        expected = "3 (or TREC's 4) should be" if counts[1:] else f"the first judgement has {counts[0]}"
        raise BadLine(f"{counted(len(columns), 'column')} where {expected}", _COLUMNS)
    return [checked_id(column.strip()) for column in columns]


def _grade(grade: str) -> int:
    """The grade as a whole number; 1.0 is read as 1."""
    try:
        number = float(grade)
    except ValueError:
        number = 0.5
    if not number.is_integer():
        raise BadLine(f"the grade {grade!r} is not a whole number", _COLUMNS)
    if abs(number) > _LARGEST:
        raise BadLine(f"the grade {grade!r} is larger than {_LARGEST:,}", f"{_COLUMNS} Check the order of the columns.")
    return int(number)
