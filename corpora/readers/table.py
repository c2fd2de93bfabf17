"""CSV, TSV and their kin: one document a row, the columns found by the header line or named by the user.

What a table may be: UTF-8; commas, tabs, semicolons or bars between columns (or what Excel's line ``sep=`` says); cells in
double quotes or not (`termweave.corpora.dialect` finds out). Every row has as many cells as the header line; one whose cells are
all empty, as spreadsheets leave them below the last and above the first, is an empty line. A row's line is the one that it begins
on; cells keep their blanks, and all that is not id, title or text is metadata, as strings.
"""

from __future__ import annotations

import csv
from collections import deque
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora import dialect, files
from termweave.corpora.fields import ID_KEYS, SKIP_HINT, TEXT_KEYS, TITLE_KEY, BadLine, Mapper, not_utf8, too_long
from termweave.corpora.filesource import FileSource
from termweave.corpora.packing import opened
from termweave.corpora.sources import Fields
from termweave.errors import InputError, UsageError
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.dialect import Dialect
    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

#: Bytes at the beginning that show how a table is written.
_START = 1 << 18
#: What `csv` says, and what it means to somebody who looks at the file.
_REASONS = {
    "unexpected end of data": "a quote that opens here is never closed",
    "new-line character": "a carriage return in the middle of a line",
    "field larger": "a cell longer than is read",
}


def find_dialect(path: Path) -> Dialect | None:
    """How a file is written, if it is a table; bytes that are no UTF-8 are no obstacle yet, NULs in its first line are."""
    start, whole = b"", False
    try:
        with opened(path) as stream:
            while len(start) < _START and (chunk := stream.read1(_START - len(start))):
                start += chunk
            whole = len(start) < _START
    except InputError:
        if not start:
            raise
        # Damaged further down: that is for the reading to say, which knows the line.
    start = start.removeprefix(files.BOM)
    if b"\0" in start.partition(b"\n")[0] or not start.strip() or start.lstrip()[:1] in {b"{", b"["}:
        return None
    return dialect.find(start.decode(errors="surrogateescape"), whole=whole)


class Table(FileSource):
    """A table of documents: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a CSV or TSV table"
    MAPPED: ClassVar[bool] = True
    KIND: ClassVar[str] = "table/3"

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(path, reading)
        self._columns = _Columns(self._dialect.first, self.reading.fields, self.shown)

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """A file whose first lines are rows of as many cells, or whose first line names an id, a title or a text."""
        path = Path(spec)
        return path.is_file() and find_dialect(path) is not None

    @cached_property
    def _dialect(self) -> Dialect:
        found = find_dialect(self.path)
        if found is None:
            raise UsageError(f"{self.shown} is no table.", "Its first lines have to have as many cells each.")
        return found

    @property
    def remarks(self) -> list[str]:
        """What was taken for what."""
        return [f"{self.shown}: {self._dialect}; {self._columns}."]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """The rows behind the header line."""
        mapper = Mapper(self._columns.fields)
        ahead = self._columns.header
        for line, row in _rows(_Lines(files.raw_lines(self.path, progress), skip=self._dialect.announced), self._dialect):
            if ahead:
                if isinstance(row, BadLine):  # without its names no row can be read: nothing to skip
                    raise row.at(self.shown, line)
                ahead = False
                continue
            yield line, row if isinstance(row, BadLine) else self._document(mapper, row, line)

    def _document(self, mapper: Mapper, row: list[str], line: int) -> Document | BadLine:
        names = self._columns.names
        if len(row) != len(names):
            return BadLine(f"{counted(len(row), 'cell')} where {len(names)} should be")
        try:
            return mapper.document(dict(zip(names, row, strict=True)), line)
        except BadLine as bad:
            return bad


class _Columns:
    """Which column is what.

    Attributes:
        names: Of all columns.
        header: The first row is a header line, and no document.
        fields: The fields to map by, all of them among `names`.
    """

    def __init__(self, first: tuple[str, ...], asked: Fields, file: str) -> None:
        cells = [cell.strip() for cell in first]
        known = any(cell.lower() in dialect.KNOWN for cell in cells)
        # By its number no line becomes one: in "1<tab>some text" the 1 is a document's id, and meant is the first column.
        self.header = known or any(cell in asked.named() and not _is_number(cell, len(cells)) for cell in cells)
        self._by_options = self.header and not known
        numbers = [f"column{number}" for number in range(1, len(cells) + 1)]
        self.names = [cell or number for cell, number in zip(cells, numbers, strict=True)] if self.header else numbers
        if any("\udc80" <= character <= "\udcff" for name in self.names for character in name):
            hint = "Turn the file into UTF-8: `iconv -f WINDOWS-1252 -t UTF-8`."
            raise InputError(f"The header line of {file} is not UTF-8.", hint)
        shown = ", ".join(map(repr, self.names if self.header else cells))
        if twice := {name for name in self.names if self.names.count(name) > 1}:
            raise UsageError(f"{file} has two columns called {min(twice)!r}.", "Rename one of them.")

        def column(name: str) -> str:
            if name in self.names:
                return name
            if _is_number(name, len(self.names)):
                return self.names[int(name) - 1]
            hint = "Name one of these, or its number."
            if not known:  # whoever names a cell of a first document would lose it
                hint = f"Where that is a document, name columns by their numbers, 1 to {len(cells)}; where it is a header line, by name."
            raise UsageError(f"{file} has no column {name!r}; its first line is: {shown}.", hint)

        taken = {*map(column, asked.named())}
        free = {name.lower(): name for name in reversed(self.names) if name not in taken}

        def usual(keys: tuple[str, ...]) -> str | None:
            return next((free[key] for key in keys if key in free), None)

        texts = tuple(map(column, asked.text)) or tuple(filter(None, [usual(TEXT_KEYS)]))
        title = column(asked.title) if asked.title else usual((TITLE_KEY,))
        id_ = column(asked.id) if asked.id else usual(ID_KEYS)
        if not texts and title is None:
            hint = "Say which it is: --text-field NAME, --id-field NAME; numbers (1, 2, ...) where there is no header line."
            raise UsageError(
                f"{file} is a table, and which column holds the text is not known; its first line is: {shown}.", hint
            )
        self.fields = Fields(id_, title, texts)

    def __str__(self) -> str:
        other = [name for name in self.names if name not in self.fields.named()]
        parts = [
            f"id = {self.fields.id!r}" if self.fields.id else "ids are the line numbers",
            f"title = {self.fields.title!r}" if self.fields.title else "",
            f"text = {' + '.join(map(repr, self.fields.text))}" if self.fields.text else "",
            f"metadata = {', '.join(map(repr, other))}" if other else "",
            "" if self.header else "no header line",
            "its first line is the header line, as options say" if self._by_options else "",
        ]
        return "; ".join(filter(None, parts))


def _is_number(name: str, columns: int) -> bool:
    """Whether this may be the number of a column."""
    return name.isdecimal() and 0 < int(name) <= columns


class _Lines:
    """A file's lines for `csv.reader`, which can be told to go back.

    Lines that are no text (not UTF-8, NULs, too long) are handed on so that quotes stay in step, and noted in `trouble`.
    """

    def __init__(self, numbered: Iterator[tuple[int, bytes | None]], *, skip: bool) -> None:
        self._numbered = numbered
        self._waiting: deque[tuple[int, bytes | None]] = deque()
        self._record: list[tuple[int, bytes | None]] = []
        self._size = 0
        self.trouble: BadLine | None = None
        if skip:
            next(numbered, None)

    def begin(self, *, again: bool = False) -> None:
        """A new row begins; with `again` at the second line of the one before."""
        if again:
            self._waiting.extendleft(reversed(self._record[1:]))
        self._record.clear()
        self._size, self.trouble = 0, None

    @property
    def first(self) -> int:
        """The number of the line that the row begins on."""
        return self._record[0][0] if self._record else 0

    @property
    def last(self) -> int:
        """The number of the line that the row ends on, so far."""
        return self._record[-1][0] if self._record else 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        number, line = self._waiting.popleft() if self._waiting else next(self._numbered)
        self._record.append((number, line))
        self._size += len(line or b"")
        if self._size > files.MAX_LINE and len(self._record) > 1:
            raise csv.Error("unexpected end of data")
        if line is None:
            self.trouble = self.trouble or too_long()
            return "\n"
        line = line.removeprefix(files.BOM)
        try:
            text = line.decode()
        except UnicodeDecodeError as wrong:
            self.trouble = self.trouble or not_utf8(wrong, self._behind(number))
            return line.decode(errors="replace")
        if "\0" in text:
            self.trouble = self.trouble or BadLine(f"{self._behind(number)}a NUL byte at column {text.index(chr(0)) + 1}")
        return text

    def _behind(self, number: int) -> str:
        """In a row of several lines the one that is meant."""
        return f"on line {number}, " if number != self.first else ""


def _rows(lines: _Lines, found: Dialect) -> Iterator[tuple[int, list[str] | BadLine]]:
    """The rows that hold something, each with the line it begins on; a row that cannot be read as the reason."""
    csv.field_size_limit(max(csv.field_size_limit(), files.MAX_LINE + 1))  # the process's; its default of 128 kB is no document
    reader = csv.reader(lines, **found.options())  # type: ignore[arg-type]
    again = False
    while True:
        lines.begin(again=again)
        again = False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Its other lines may be rows of their own, which a stray quote has swallowed.
            again = True
            yield lines.first, lines.trouble or BadLine(_reason(str(error), lines), _hint(str(error), found.delimiter))
            continue
        if lines.trouble:
            yield lines.first, lines.trouble
        elif any(row):
            yield lines.first, row


def _hint(said: str, delimiter: str) -> str:
    if "new-line" in said or "field larger" in said:
        return SKIP_HINT
    # Quotes that are characters are read as such once every cell is quoted and the quotes in it are doubled.
    cell = "\\t" if delimiter == "\t" else delimiter
    quoting = f'sed \'s/"/""/g; s/[^{cell}]*/"&"/g\''
    return (
        "Write a quote within a quoted cell twice, or leave such rows out with --skip-bad; where quotes are characters like others "
        f"in all of the file, `{quoting}` makes a table of it in which they are."
    )


def _reason(said: str, lines: _Lines) -> str:
    known = next((reason for start, reason in _REASONS.items() if start in said), None)
    if known is None:  # "',' expected after '"'"
        known = "a quoted cell goes on behind the quote that closes it"
    return f"{known}, up to line {lines.last}" if lines.last > lines.first else known
