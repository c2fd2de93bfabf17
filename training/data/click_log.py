"""The clicks of a log as training pairs: which documents people opened after which query, and how often.

The log is a file (`corpora.behaviour.clicks`), or ``ubi:FOLDER``, ``ubi:opensearch``: a log of user behaviour, whose clicks are corrected for
the positions at which documents stood (`corpora.behaviour`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave.corpora.behaviour.clicks import ClickLog
from termweave.corpora.index import ubi_indices
from termweave.errors import InputError
from termweave.support.messages import counted
from termweave.training.data.pairs import Pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
        InputError: Most lines are no clicks, or none names a document of the corpus.
    """
    clicks, lines = Clicks(), ClickLog(Path(log))
    rows: Iterator[tuple[str, str, float]]
    if str(log).startswith(ubi_indices.PREFIX):
        behaviour = ubi_indices.UbiLog(str(log), "corrected")
        rows = ((query, document, count) for query, of in behaviour.counts().items() for document, count in of.items())
        clicks.notes += behaviour.notes
    else:
        rows = lines.clicks()
    for query, document, count in rows:
        if not query or count <= 0:
            clicks.empty += 1
        elif document not in place:
            clicks.unknown += 1
        else:
            of = clicks.counts.setdefault(query, {})
            of[place[document]] = of.get(place[document], 0.0) + count
    clicks.notes += lines.remarks
    if not clicks.counts:
        raise InputError(
            f"No line of {log} is a click on a document of the corpus: {clicks.unknown:,} lines name an unknown document, "
            f"{clicks.empty:,} have no query or a count that is not positive.",
            "Check the document ids and the counts.",
        )
    return clicks
