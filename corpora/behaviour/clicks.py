"""A click log: which documents people opened after which query, and how often. Read as judgements, a clicked document answers its query.

Lines of query, document id and count with tabs between them, or ``{"query": ..., "document": ..., "count": ...}``; a count may be
missing or null and is 1 then, so that pairs of a query and its answer are a log, too. Plain or packed (gzip, Zstandard). A first line that
is no click is taken for a header; other lines that are no clicks are left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import orjson

from termweave.corpora.file_source import JudgementSource
from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, checked_id
from termweave.corpora.judgements import Judged, Judgements, check_split, query_id
from termweave.corpora.sources import DEFAULT_SPLIT, Skipped
from termweave.errors import InputError
from termweave.records import Qrels, Query
from termweave.support.messages import clipped, counted
from termweave.support.normal_form import normal

#: Clicks of a line; a share is by their logarithm, and any number of such lines has a sum.
_MOST = 1e100
#: The only split; characters of a line that a message shows.
_ALL, _SHOWN = "all", 60


class ClickLog(Judged, JudgementSource):
    """A file of clicks: a `Dataset` without documents. The ids of its queries are made by `corpora.judgements.query_id`, as in every log."""

    LABEL: ClassVar[str] = "a click log (data sets only)"
    KIND: ClassVar[str] = "clicks/1"
    THING: ClassVar[str] = "A click log"
    USE: ClassVar[str] = "Use the log with 'termweave learn', 'tune' and 'evaluate', and with --set clicks=FILE."

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self.name, self.split = path, path.name, _ALL

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the beginning of a file has a line that is a click."""
        with suppress(OSError, ValueError):
            for line in files.head(Path(spec)).decode(errors="replace").split("\n") if Path(spec).is_file() else ():
                with suppress(ValueError, KeyError, TypeError):
                    return bool(_click(line.rstrip("\r")))
        return False

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> ClickLog:
        """Open the log as judged queries.

        Raises:
            UsageError: The split is neither "test" nor "all".
        """
        check_split(spec, _ALL if split == DEFAULT_SPLIT else split, [_ALL])
        return cls(Path(spec))

    def splits(self) -> list[str]:
        """Return the name of the only split, "all"."""
        return [_ALL]

    @cached_property
    def _judged(self) -> Judgements:
        qrels: Qrels = {}
        texts: dict[str, str] = {}
        for text, document, count in self.clicks():
            if text and count > 0:
                qrels.setdefault(query_id(text), {})[document] = 1
                texts.setdefault(query_id(text), text)
        return Judgements([Query(*each) for each in texts.items()], qrels, self.remarks)

    @property
    def remarks(self) -> list[str]:
        """A sentence about the lines that the last reading of the file left out; [] if it left out none."""
        left_out = f"{counted(self.skipped.count, 'line')} of {self.name} left out: not a click, such as line"
        return [f"{left_out} {first.line} ({first.reason})." for first in self.skipped.kept[:1]]

    def clicks(self) -> Iterator[tuple[str, str, float]]:
        """Yield query, document id and count of each line; a count is at most `_MOST`.

        Raises:
            UsageError: There is no such file.
            InputError: The file has fewer clicks than lines that are no clicks.
        """
        self.skipped.clear()
        read = 0
        for number, raw in files.raw_lines(self._path):
            line = (raw or b"").removeprefix(files.BOM).decode(errors="replace").strip("\r\n")
            if raw is not None and not line.strip():
                continue
            try:
                yield _click(line)
                read += 1
            except (ValueError, KeyError, TypeError) as wrong:
                if number > 1 or line.startswith("{") or isinstance(wrong, BadLine):  # no header
                    reason = str(wrong) if isinstance(wrong, BadLine) else repr(clipped(line.strip(), _SHOWN))
                    self.skipped.add(Skipped(number, reason))
        if self.skipped.count > read:
            first = self.skipped.kept[0]
            hint = "Write query, document id and count with tabs between them, or as JSON."
            raise InputError(f"{self._path}, line {first.line} is not a click: {first.reason}.", hint)


def _click(line: str) -> tuple[str, str, float]:
    """Parse query, document id and count from a line.

    Raises:
        ValueError, KeyError, TypeError: The line is no click; a `BadLine` (a ValueError) gives the reason.
    """
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
    if not math.isfinite(clicks) or not str(document).strip():
        raise ValueError
    return " ".join(normal(query).split()), checked_id(str(document).strip()), min(clicks, _MOST)
