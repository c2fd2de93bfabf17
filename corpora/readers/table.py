"""Read tables (CSV, TSV and similar): one document per row. The header line or the user names the columns.

Tables are UTF-8, with commas, tabs, semicolons or bars between columns (or the character of Excel's line ``sep=``), and cells in double
quotes or not. Every row must have as many cells as the header line. A row whose cells are all empty counts as an empty line: spreadsheets write
such rows. The line of a row is its first line. Cells keep their blanks, and all columns but id, title and text become metadata, as strings.

`csv.Sniffer` counts characters in lines, and text with many commas and apostrophes misleads it (for MS MARCO's collection.tsv it chose a letter
as the delimiter). Here every usual dialect reads the first lines, and the one in which most rows have as many cells as the first row is chosen.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.catalog.source_fields import ID_KEYS, TEXT_KEYS, TITLE_KEY, Fields
from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines as files
from termweave.corpora.formats.compression import decompressed
from termweave.corpora.formats.fields import SKIP_HINT, BadLine, Mapper, attempted, described, not_utf8, too_long
from termweave.errors import InputError, UsageError
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

#: Number of bytes at the beginning from which the dialect is detected.
_START = 1 << 18
#: Parts of the error messages of `csv` -> clauses that describe the problem in the file.
_REASONS = {
    "unexpected end of data": "a quote that opens here is never closed",
    "new-line character": "a carriage return in the middle of a line",
    "field larger": "a cell that is too long",
}
#: Column names that show that the first line is a header line.
KNOWN = frozenset({*ID_KEYS, *TEXT_KEYS, TITLE_KEY})

#: The usual delimiters, and their names in messages.
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
#: In a table without a known column name, more than this share of rows must be as wide as the first; some may be broken.
_ENOUGH = 0.5
#: The line by which Excel announces the delimiter.
_EXCEL = re.compile(r'sep=([^"\r\n])\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """The dialect of a table.

    Attributes:
        delimiter: Character between the cells of a row.
        quoted: Whether cells can be in double quotes, with ``""`` for a quote (RFC 4180); if not, quotes are ordinary characters.
        first: Cells of the first row.
        announced: Whether the file begins with Excel's line ``sep=;``.
    """

    delimiter: str
    quoted: bool
    first: tuple[str, ...]
    announced: bool = False

    def __str__(self) -> str:
        return f"{DELIMITERS.get(self.delimiter, repr(self.delimiter))} between columns, {'' if self.quoted else 'no '}quoting"

    def options(self) -> dict[str, object]:
        """Return the keyword arguments for `csv.reader`. The reader is strict, because a lenient one loses text after a stray quote."""
        quoting = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        return {"delimiter": self.delimiter, "quoting": quoting, "quotechar": '"', "doublequote": True, "strict": True}


def dialect_of(start: str, *, whole: bool) -> Dialect | None:
    """Find the dialect of a table; None if the text is not a table.

    Args:
        start: First lines of the file.
        whole: Whether these are all lines; if not, the last one may be cut.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", start)  # str.splitlines would also split at U+2028
    if not whole:
        del lines[-1:]
    announced = _EXCEL.fullmatch(lines[0]) if lines else None
    delimiters = [announced[1]] if announced else [*DELIMITERS]
    lines = lines[announced is not None :]
    possible = [Dialect(mark, quoted, ()) for mark in delimiters for quoted in _quotings(lines, mark)]
    fits = [(*fit, dialect) for dialect in possible if (fit := _fit(lines, dialect)) is not None]
    if not fits:
        return None
    _, first, dialect = max(fits, key=lambda fit: fit[0])  # if equal, the first one: quoted before unquoted
    return replace(dialect, first=first, announced=announced is not None)


def _quotings(lines: list[str], delimiter: str) -> tuple[bool, ...]:
    """Return the values of `Dialect.quoted` that are possible for some lines: True, False or both."""
    # The possessive quantifier *+ avoids quadratic time for a quote that is never closed.
    mark = re.escape(delimiter)
    others, closed = re.subn(rf'(?:^|(?<={mark}))"(?:[^"]|"")*+"(?={mark}|\r?$)', "", "".join(lines), flags=re.MULTILINE)
    stray = len(re.findall(rf'(?:^|{mark})"', others, flags=re.MULTILINE))
    if closed > stray:
        return (True,)
    # In TSV files a quote is usually an ordinary character (MS MARCO, search tools); in CSV files it usually quotes a cell.
    return (False,) if delimiter == "\t" else (True, False) if stray else (True,)


def _fit(lines: list[str], dialect: Dialect) -> tuple[tuple[bool, float, int], tuple[str, ...]] | None:
    """Rate how well a dialect fits some lines; return the rating and the cells of the first row; None: in this dialect the lines are no table."""
    rows = [row for row in _readable_rows(lines, dialect) if row is None or any(row)]
    first = tuple(rows[0] or ()) if rows else ()
    width = len(first)
    agreeing = sum(row is not None and len(row) == width for row in rows) / max(1, len(rows))
    has_names = width > 1 and any(cell.strip().lower() in KNOWN for cell in first)
    is_table = has_names or (width > 1 and len(rows) > 1 and agreeing > _ENOUGH)
    return ((has_names, round(agreeing, 2), width), first) if is_table else None


def _readable_rows(lines: list[str], dialect: Dialect) -> Iterator[list[str] | None]:
    """Yield the rows of some lines; None in place of a row that cannot be read."""
    reader = csv.reader(lines, **dialect.options())  # type: ignore[arg-type]
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num < len(lines) or "unexpected end" not in str(error):  # else the cut of the text is the reason
                yield None


def find_dialect(path: Path) -> Dialect | None:
    """Detect the dialect of a file; None if it is not a table. The file may contain bytes that are not UTF-8, but no NUL in its first line."""
    start, whole = b"", False
    try:
        with decompressed(path) as stream:
            while len(start) < _START and (chunk := stream.read1(_START - len(start))):
                start += chunk
            whole = len(start) < _START
    except InputError:
        if not start:
            raise
        # Damaged further down: reading the rows raises the error, with the line.
    start = start.removeprefix(files.BOM)
    if b"\0" in start.partition(b"\n")[0] or not start.strip() or start.lstrip()[:1] in {b"{", b"["}:
        return None
    return dialect_of(start.decode(errors="surrogateescape"), whole=whole)


class Table(FileSource):
    """A table of documents: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a CSV or TSV table"
    MAPPED: ClassVar[bool] = True
    SEPARATES: ClassVar[bool] = True
    KIND: ClassVar[str] = "table/3"

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(path, reading)
        self._columns = _Columns(self._dialect.first, self.reading.fields, self.shown)
        self.decimal_commas = "," not in {self._dialect.delimiter, self.reading.list_separator}

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the first lines of a file have the same number of cells, or the first line names an id, a title or a text."""
        path = Path(spec)
        return path.is_file() and find_dialect(path) is not None

    @property
    def kind(self) -> str:
        """The part of the fingerprint that tells how the bytes are read."""
        return f"{super().kind} {self.reading.list_separator!r}" if self.reading.list_separator else super().kind

    @cached_property
    def _dialect(self) -> Dialect:
        dialect = find_dialect(self.path)
        if dialect is None:
            raise UsageError(f"{self.shown} is not a table.", "Give its first lines the same number of cells.")
        return dialect

    @property
    def remarks(self) -> list[str]:
        """A sentence about the dialect and the columns."""
        return [f"{self.shown}: {self._dialect}; {self._columns}."]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """Read the rows after the header line."""
        mapper = Mapper(self._columns.fields)
        lines = islice(files.raw_lines(self.path, progress), int(self._dialect.announced), None)
        rows = _rows(_Lines(lines), self._dialect)
        for line, row in islice(rows, int(self._columns.header)):
            if isinstance(row, BadLine):  # without column names no row can be read, so this cannot be skipped
                raise row.at(self.shown, line)
        for line, row in rows:
            yield line, row if isinstance(row, BadLine) else attempted(self._document, mapper, row, line)

    def _document(self, mapper: Mapper, row: list[str], line: int) -> Document:
        names = self._columns.names
        if len(row) != len(names):
            raise BadLine(f"{counted(len(row), 'cell')} where {len(names)} should be")
        cells: dict[str, Any] = dict(zip(names, row, strict=True))
        if separator := self.reading.list_separator:
            for name, cell in cells.items():
                if name not in self._columns.fields.named() and separator in cell:
                    cells[name] = [part.strip() for part in cell.split(separator) if part.strip()]
        return mapper.document(cells, line)


class _Columns:
    """The columns of a table.

    Attributes:
        names: Names of all columns.
        header: Whether the first row is a header line, and not a document.
        fields: Columns of id, title and text, all of them among `names`.
    """

    def __init__(self, first: tuple[str, ...], fields: Fields, file: str) -> None:
        cells = [cell.strip() for cell in first]
        usual_names = any(cell.lower() in KNOWN for cell in cells)
        # A number in the options does not make a header line: in "1<tab>some text" the 1 is the id of a document.
        self.header = usual_names or any(cell in fields.named() and not _is_number(cell, len(cells)) for cell in cells)
        self._by_options = self.header and not usual_names
        numbers = [f"column{number}" for number in range(1, len(cells) + 1)]
        self.names = [cell or number for cell, number in zip(cells, numbers, strict=True)] if self.header else numbers
        if any("\udc80" <= character <= "\udcff" for name in self.names for character in name):
            raise InputError(f"The header line of {file} is not UTF-8.", "Convert it: `iconv -f WINDOWS-1252 -t UTF-8`.")
        shown = ", ".join(map(repr, self.names if self.header else cells))
        if twice := {name for name in self.names if self.names.count(name) > 1}:
            raise UsageError(f"{file} has two columns called {min(twice)!r}.", "Rename one of them.")

        def column(name: str) -> str:
            if name in self.names:
                return name
            if _is_number(name, len(self.names)):
                return self.names[int(name) - 1]
            unknown = f"If that is a document, give the columns' numbers, 1 to {len(cells)}; if it is a header line, their names."
            hint = "Name one of these, or its number." if usual_names else unknown
            raise UsageError(f"{file} has no column {name!r}; its first line is: {shown}.", hint)

        taken = {*map(column, fields.named())}
        free = {name.lower(): name for name in reversed(self.names) if name not in taken}

        def usual(keys: tuple[str, ...]) -> str | None:
            return next((free[key] for key in keys if key in free), None)

        texts = tuple(map(column, fields.text)) or tuple(filter(None, [usual(TEXT_KEYS)]))
        title = column(fields.title) if fields.title else usual((TITLE_KEY,))
        id_ = column(fields.id) if fields.id else usual(ID_KEYS)
        if not texts and title is None:
            hint = "Name it: --text-field NAME, --id-field NAME; without a header line by number (1, 2, ...)."
            raise UsageError(f"{file} is a table, and no column has a usual name for the text; its first line is: {shown}.", hint)
        self.fields = Fields(id_, title, texts)

    def __str__(self) -> str:
        parts = [
            described(self.names, self.fields),
            "" if self.header else "no header line",
            "its first line is the header line, because an option names a cell of it" if self._by_options else "",
        ]
        return "; ".join(filter(None, parts))


def _is_number(name: str, columns: int) -> bool:
    """Whether a text can be the number of a column."""
    return name.isdecimal() and 0 < int(name) <= columns


class _Lines:
    """Hands the lines of a file to `csv.reader`, and can go back to earlier lines of a row.

    Lines that cannot be read (not UTF-8, NULs, too long) are passed on so that quotes still match, and noted in `trouble`.

    Attributes:
        trouble: Reason why the current row cannot be read; None if it can.
    """

    def __init__(self, numbered: Iterator[tuple[int, bytes | None]]) -> None:
        self._numbered = numbered
        self._waiting: deque[tuple[int, bytes | None]] = deque()
        self._record: list[tuple[int, bytes | None]] = []
        self._size = 0
        self.trouble: BadLine | None = None

    def begin(self, *, again: bool = False) -> None:
        """Begin a new row; with `again`, begin at the second line of the previous row."""
        if again:
            self._waiting.extendleft(reversed(self._record[1:]))
        self._record.clear()
        self._size, self.trouble = 0, None

    @property
    def first(self) -> int:
        """Number of the first line of the row."""
        return self._record[0][0] if self._record else 0

    @property
    def last(self) -> int:
        """Number of the last line of the row so far."""
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
        """Return the beginning of a message that names a line; "": the line is the first one of the row."""
        return f"on line {number}, " if number != self.first else ""


def _rows(lines: _Lines, dialect: Dialect) -> Iterator[tuple[int, list[str] | BadLine]]:
    """Yield the rows that are not empty, each with the number of its first line; in place of a row that cannot be read, the reason."""
    # A limit of the whole process; its default of 128 kB is too small.
    csv.field_size_limit(max(csv.field_size_limit(), files.MAX_LINE + 1))
    reader = csv.reader(lines, **dialect.options())  # type: ignore[arg-type]
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield lines.first, lines.trouble or BadLine(_reason(str(error), lines), _hint(str(error), dialect.delimiter))
            lines.begin(again=True)  # the other lines may be rows that a stray quote has joined
            continue
        if lines.trouble or any(row):
            yield lines.first, lines.trouble or row
        lines.begin()


def _hint(message: str, delimiter: str) -> str:
    """Return advice for the user about an error message of the module `csv`."""
    if "new-line" in message or "field larger" in message:
        return SKIP_HINT
    # If quotes are ordinary characters, quoting every cell and doubling the quotes in it makes the file readable.
    cell = "\\t" if delimiter == "\t" else delimiter
    quoting = f'sed \'s/"/""/g; s/[^{cell}]*/"&"/g\''
    ordinary = f"If quotes are ordinary characters in the whole file, convert it: `{quoting}`."
    return f"Double the quotes within a quoted cell, or skip such rows with --skip-bad. {ordinary}"


def _reason(message: str, lines: _Lines) -> str:
    """Return a clause that describes the problem behind an error message of the module `csv`."""
    quote = "a quoted cell has text after its closing quote"  # "',' expected after '"'"
    reason = next((reason for part, reason in _REASONS.items() if part in message), quote)
    return f"{reason}, up to line {lines.last}" if lines.last > lines.first else reason
