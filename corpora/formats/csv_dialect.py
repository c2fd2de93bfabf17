"""Find the dialect of a table: which character separates its columns, and whether cells are quoted.

`csv.Sniffer` counts characters in lines, and text with many commas and apostrophes misleads it (for MS MARCO's collection.tsv it chose
a letter as the delimiter). Here every usual dialect reads the first lines, and the one in which most rows have as many cells as the
first row is chosen.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.catalog.source_fields import ID_KEYS, TEXT_KEYS, TITLE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """Keyword arguments for `csv.reader`. It is strict, because a lenient reader loses text after a stray quote."""
        quoting = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        return {"delimiter": self.delimiter, "quoting": quoting, "quotechar": '"', "doublequote": True, "strict": True}


def find(start: str, *, whole: bool) -> Dialect | None:
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
    """The kinds of quoting that are possible for these lines: quoted, unquoted or both."""
    # The possessive quantifier *+ avoids quadratic time for a quote that is never closed.
    mark = re.escape(delimiter)
    others, closed = re.subn(rf'(?:^|(?<={mark}))"(?:[^"]|"")*+"(?={mark}|\r?$)', "", "".join(lines), flags=re.MULTILINE)
    stray = len(re.findall(rf'(?:^|{mark})"', others, flags=re.MULTILINE))
    if closed > stray:
        return (True,)
    # In TSV files a quote is usually an ordinary character (MS MARCO, search tools); in CSV files it usually quotes a cell.
    return (False,) if delimiter == "\t" else (True, False) if stray else (True,)


def _fit(lines: list[str], dialect: Dialect) -> tuple[tuple[bool, float, int], tuple[str, ...]] | None:
    """How well a dialect fits some lines, to be compared with others, and the cells of the first row; None if the lines are no table in it."""
    rows = [row for row in _rows(lines, dialect) if row is None or any(row)]
    first = tuple(rows[0] or ()) if rows else ()
    width = len(first)
    agreeing = sum(row is not None and len(row) == width for row in rows) / max(1, len(rows))
    known = width > 1 and any(cell.strip().lower() in KNOWN for cell in first)
    is_table = known or (width > 1 and len(rows) > 1 and agreeing > _ENOUGH)
    return ((known, round(agreeing, 2), width), first) if is_table else None


def _rows(lines: list[str], dialect: Dialect) -> Iterator[list[str] | None]:
    """Read the rows; None for a row that cannot be read."""
    reader = csv.reader(lines, **dialect.options())  # type: ignore[arg-type]
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num < len(lines) or "unexpected end" not in str(
                error
            ):  # at the end, the cut of the text is the reason
                yield None
