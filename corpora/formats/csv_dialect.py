"""How a table is written: what stands between its columns, and whether quotes hold cells together.

`csv.Sniffer` guesses from how often characters stand in lines, and prose full of commas and apostrophes misleads it
(tried on MS MARCO's collection.tsv: it took a letter for the delimiter). Here every dialect that occurs in practice reads
the first lines as a whole, and the one under which most rows have as many cells as the first is taken.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.corpora.fields import ID_KEYS, TEXT_KEYS, TITLE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names that make a first line a header line.
KNOWN = frozenset({*ID_KEYS, *TEXT_KEYS, TITLE_KEY})

#: What stands between columns, in words.
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
#: A table without a known name has more than this share of rows as wide as the first: some may be broken.
_ENOUGH = 0.5
_EXCEL = "sep="


@dataclass(frozen=True)
class Dialect:
    """How a table is written.

    Attributes:
        delimiter: Between the cells of a row.
        quoted: Double quotes hold a cell together, and ``""`` in them is one (RFC 4180); else they are characters like others.
        first: The cells of the first row.
        announced: The file begins with Excel's line ``sep=;``.
    """

    delimiter: str
    quoted: bool
    first: tuple[str, ...]
    announced: bool = False

    def __str__(self) -> str:
        return f"{DELIMITERS.get(self.delimiter, repr(self.delimiter))} between columns, {'' if self.quoted else 'no '}quoting"

    def options(self) -> dict[str, object]:
        """Keyword arguments for `csv.reader`: strict, because what a lenient one makes of a stray quote is lost text."""
        quoting = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        return {"delimiter": self.delimiter, "quoting": quoting, "quotechar": '"', "doublequote": True, "strict": True}


def find(start: str, *, whole: bool) -> Dialect | None:
    """The dialect of a table that starts so; None where this is no table.

    Args:
        start: The first lines.
        whole: They are all there are; otherwise the last one may be cut.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", start)  # str.splitlines would split at U+2028, too
    if not whole:
        del lines[-1:]
    announced = bool(lines) and lines[0].lower().startswith(_EXCEL) and len(lines[0].strip()) == len(_EXCEL) + 1
    delimiters: tuple[str, ...] = (lines.pop(0)[len(_EXCEL)],) if announced else tuple(DELIMITERS)
    best: tuple[tuple[bool, float, int], Dialect] | None = None
    for delimiter in delimiters:
        for quoted in _quotings(lines, delimiter):
            found = _Fit(lines, Dialect(delimiter, quoted, (), announced))
            if found.is_table and (best is None or found.score > best[0]):  # on a tie the first: quoted before unquoted
                best = found.score, Dialect(delimiter, quoted, found.first, announced)
    return best and best[1]


def _quotings(lines: list[str], delimiter: str) -> tuple[bool, ...]:
    """Which of quoted and unquoted the lines leave open."""
    # Possessive, because a quote that is never closed would be tried in every length.
    mark = re.escape(delimiter)
    others, closed = re.subn(rf'(?:^|(?<={mark}))"(?:[^"]|"")*+"(?={mark}|\r?$)', "", "".join(lines), flags=re.MULTILINE)
    stray = len(re.findall(rf'(?:^|{mark})"', others, flags=re.MULTILINE))
    if closed > stray:
        return (True,)
    # In a TSV a quote is a character (MS MARCO, and what search tools write); behind commas it will mean something when it comes.
    return (False,) if delimiter == "\t" else (True, False) if stray else (True,)


class _Fit:
    """How well a dialect reads some lines."""

    def __init__(self, lines: list[str], dialect: Dialect) -> None:
        rows = [row for row in _rows(lines, dialect) if row is None or any(row)]
        self.first = tuple(rows[0] or ()) if rows else ()
        width = len(self.first)
        agreeing = sum(row is not None and len(row) == width for row in rows) / max(1, len(rows))
        known = width > 1 and any(cell.strip().lower() in KNOWN for cell in self.first)
        self.is_table = known or (width > 1 and len(rows) > 1 and agreeing > _ENOUGH)
        self.score = known, round(agreeing, 2), width


def _rows(lines: list[str], dialect: Dialect) -> Iterator[list[str] | None]:
    """The rows; None for one that cannot be read."""
    reader = csv.reader(lines, **dialect.options())  # type: ignore[arg-type]
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num < len(lines) or "unexpected end" not in str(error):  # at the very end it is the cut
                yield None
