"""A click log: which documents people opened after which query, and how often.

Lines of query, document id and count with tabs between them, or ``{"query": ..., "document": ..., "count": ...}``; a count may be
missing or null and is 1 then. Plain or packed (gzip, Zstandard). A first line that is no click is taken for a header. Or ``ubi:FOLDER``, ``ubi:opensearch``:
a log of user behaviour, whose clicks are corrected for the positions at which documents stood (`corpora.behaviour`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson

from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import checked_id
from termweave.corpora.index import ubi_indices
from termweave.errors import InputError, UsageError
from termweave.support.messages import counted
from termweave.support.normal_form import normal
from termweave.training.data.pairs import Pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Clicks of a line; a share is by their logarithm, and any number of such lines has a sum.
_MOST = 1e100


@dataclass
class Clicks:
    """The clicks of a log on the documents of a corpus.

    Attributes:
        counts: Query -> document -> clicks, summed over the lines.
        unknown: Lines that name a document which the corpus does not hold.
        empty: Lines without a query, or with a count of 0 or less.
        notes: Further sentences about the log.
    """

    counts: dict[str, dict[int, float]] = field(default_factory=dict)
    unknown: int = 0
    empty: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def remark(self) -> str:
        """A sentence about the lines that were left out; "" if there are none."""
        parts = [
            (self.unknown, "about a document that the corpus does not hold"),
            (self.empty, "without a query or without a click"),
        ]
        reasons = " and ".join(f"{counted(count, 'line')} {what}" for count, what in parts if count)
        return "\n".join([*([f"click log: {reasons} left out"] if reasons else []), *self.notes])

    def pairs(self) -> Pairs:
        """Return questions with their clicked documents; a question is drawn in proportion to log(1 + its clicks)."""
        shares = np.array([math.log1p(sum(of.values())) for of in self.counts.values()])
        return Pairs(list(self.counts), [frozenset(of) for of in self.counts.values()], shares / shares.sum())


def gather(log: Path | str, place: Mapping[str, int]) -> Clicks:
    """Read a log.

    Args:
        log: The file, or the address of a log of user behaviour.
        place: Index of each document of the corpus.

    Raises:
        UsageError: There is no such file.
        InputError: A line is no click, or none names a document of the corpus.
    """
    clicks = Clicks()
    rows: Iterator[tuple[str, str, float]]
    if str(log).startswith(ubi_indices.PREFIX):
        behaviour = ubi_indices.UbiLog(str(log), "corrected")
        rows = ((query, document, count) for query, of in behaviour.counts().items() for document, count in of.items())
        clicks.notes += behaviour.notes
    else:
        rows = read(Path(log))
    for query, document, count in rows:
        if not query or count <= 0:
            clicks.empty += 1
        elif document not in place:
            clicks.unknown += 1
        else:
            of = clicks.counts.setdefault(query, {})
            of[place[document]] = of.get(place[document], 0.0) + count
    if not clicks.counts:
        raise InputError(
            f"No line of {log} is a click on a document of the corpus: {clicks.unknown:,} lines name an unknown document, "
            f"{clicks.empty:,} have no query or a count that is not positive.",
            "Check the document ids and the counts.",
        )
    return clicks


def read(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield query, document id and count of each line; a count is at most `_MOST`.

    Raises:
        UsageError: There is no such file.
        InputError: A line is no click.
    """
    if not path.is_file():
        raise UsageError(f"There is no click log {path}.", "Name a file with --set clicks=FILE.")
    for number, raw in files.raw_lines(path):
        line = "" if raw is None else raw.removeprefix(files.BOM).decode(errors="replace").strip("\r\n")
        if raw is not None and not line.strip():
            continue
        try:
            yield _click(line)
        except (ValueError, KeyError, TypeError):
            if number == 1 and not line.startswith("{"):
                continue  # a header
            raise InputError(
                f"{path}, line {number} is no click: {line.strip()[:60]!r}.",
                "Write query, document id and count with tabs between them, or as JSON.",
            ) from None


def _click(line: str) -> tuple[str, str, float]:
    if line.lstrip().startswith("{"):
        entry = orjson.loads(line)
        query, document, count = entry["query"], entry["document"], entry.get("count")
    else:
        query, document, count, *more = [*line.split("\t"), "1"] if line.count("\t") == 1 else line.split("\t")
        if more:
            raise ValueError
    if not isinstance(query, str) or not isinstance(document, str | int):  # null is no question
        raise TypeError
    clicks = 1.0 if count in {None, ""} else float(count)
    if not math.isfinite(clicks):
        raise ValueError
    return " ".join(normal(query).split()), checked_id(str(document).strip()), min(clicks, _MOST)
