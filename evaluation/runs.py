"""Run files as trec_eval reads them: query, Q0, document, rank, score, name."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote

from termweave.corpora import files
from termweave.corpora.fields import BadLine, text_line
from termweave.errors import InputError, UsageError
from termweave.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

#: What separates columns, and what stands for it.
_APART = re.compile(r"[\s%]")


class Writer:
    """Writes a run query by query; it appears under its name when it is whole.

    Until then, and after an interruption or on a full disk, what there is stands in ``NAME.partial``: whole queries only, itself a
    valid run. A device or a pipe (``/dev/stdout``) is written to as it is and never replaced; of a link, what it leads to is.

    Attributes:
        path: Where the run will be.
        partial: Where it is until then.
        queries: How many queries were added.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._place = path.resolve() if path.is_symlink() and path.is_file() else path
        streams = path.exists() and not path.is_file()
        self.partial = path if streams else self._place.with_name(f"{self._place.name}.partial")
        self.queries = 0
        self._name = name
        self._whole = 0

    def __enter__(self) -> Self:
        self._file = self.partial.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._file.close()
            if self.partial != self.path:
                self.partial.replace(self._place)
            return
        with suppress(OSError):  # a disk that is full will not take the rest now
            self._file.close()
        if self.partial != self.path:
            os.truncate(self.partial, self._whole)

    def add(self, query: str, scores: Mapping[str, float]) -> None:
        """Add a query's documents, best first; without documents it has no line, as trec_eval wants it."""
        written = lines(query, scores, self._name).encode()
        self._file.write(written)
        self._file.flush()  # a query counts when it is there
        self._whole += len(written)
        self.queries += 1


def write(run: Run, path: Path) -> None:
    """Write a run."""
    with Writer(path, run.name) as writer:
        for query, scores in run.scores.items():
            writer.add(query, scores)


def lines(query: str, scores: Mapping[str, float], name: str) -> str:
    """The lines of one query; white space in ids, which separates columns, and "%" are percent-encoded."""
    return "".join(
        f"{_word(query)} Q0 {_word(document)} {rank} {score:.9g} {_word(name)}\n"
        for rank, (document, score) in enumerate(strictly_decreasing(scores).items(), 1)
    )


def rewritten(ids: Iterable[str]) -> set[str]:
    """Those of the ids that stand in a run as others: percent-encoded."""
    return {each for each in ids if _APART.search(each)}


def remark(ids: set[str]) -> str:
    """What to say of `rewritten`."""
    hold = "id holds" if len(ids) == 1 else "ids hold"
    return f"{len(ids):,} {hold} blanks or '%', for example {min(ids)!r}: percent-encoded in runs, and decoded where termweave reads them."


def strictly_decreasing(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores as trec_eval can tell them apart, in the order they have here.

    It keeps float32 and orders equal scores by id, descending; what is measured should be what is shown.
    """
    import numpy as np  # noqa: PLC0415

    lowered: dict[str, float] = {}
    last = np.float32(np.inf)
    for document, score in scores.items():
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
        lowered[document] = float(last)
    return lowered


def read(path: Path) -> Run:
    """Read a run, plain or packed.

    As for trec_eval the scores order it, equal ones by id, descending; lines and ranks of others may say otherwise.

    Raises:
        UsageError: There is no such file.
        InputError: A line is not one of a run, or names a document for the second time; it is named.
    """
    import numpy as np  # noqa: PLC0415

    found: dict[str, dict[str, float]] = {}
    name, ours = path.stem, True
    for number, line in _lines(path):
        try:
            query, _, document, _, text, name = line.split()
            score = float(text)
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise InputError(f"{path}, line {number}: not a line of a run.", "Six columns: query Q0 document rank score name.")
        if document in found.setdefault(query, {}):
            raise InputError(f"{path}, line {number}: document {document!r} for the second time.", "Keep one of the two.")
        found[query][document] = score
        ours = ours and all("%" not in word or _word(unquote(word)) == word for word in (query, document, name))
    # Another program's ids may be URLs: one escape that we would not write says that all stand as they are.
    back = unquote if ours else str

    def place(scored: tuple[str, float]) -> tuple[float, str]:
        return float(np.float32(scored[1])), scored[0]

    scores = {back(query): {back(each): score for each, score in ranked.items()} for query, ranked in found.items()}
    return Run(back(name), {query: dict(sorted(ranked.items(), key=place, reverse=True)) for query, ranked in scores.items()})


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        path.open("rb").close()
    except OSError as error:
        made = "Write one with: termweave evaluate NAME DATASET --save-run DIR"
        hint = "See who may read it." if isinstance(error, PermissionError) else made
        raise UsageError(f"The run {path} cannot be read: {error.strerror}.", hint) from None
    for number, line in files.lines(path):
        try:
            yield number, text_line(line, "A run is a text in UTF-8.")
        except BadLine as bad:
            raise bad.at(str(path), number) from None


def _word(text: str) -> str:
    return _APART.sub(lambda found: quote(found.group()), text)
