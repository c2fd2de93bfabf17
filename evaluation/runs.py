"""Write and read run files in the format of trec_eval, with the columns query, Q0, document, rank, score, name."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote

from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import BadLine, text_line
from termweave.errors import InputError
from termweave.records import Run, strictly_decreasing
from termweave.support import private_files

#: Characters of an id that are percent-encoded in a run: white space, because it separates columns; "%"; and at the
#: beginning "=" and "@", because a spreadsheet would run the cell as a formula (it also runs "+" and "-", but many ids begin with them), and
#: U+FEFF, which readers take for a byte order mark; and NUL, where trec_eval ends an id.
_SPECIAL = re.compile(r"[\s%\0]|\A[=@\ufeff]")


class Writer:
    """Writes a run query by query; the file gets its name when the run is complete.

    Until then, and after an interruption or on a full disk, the queries written so far are in ``NAME.partial``. That file holds
    complete queries only and is a valid run. A device or a pipe (``/dev/stdout``) is written directly and never replaced. If the
    path is a link, the file that it points to is replaced.

    Attributes:
        path: The file of the complete run.
        partial: The file that is written until the run is complete.
        queries: Number of queries written.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._target = path.resolve() if path.is_symlink() and path.is_file() else path
        is_stream = path.exists() and not path.is_file()
        self.partial = path if is_stream else self._target.with_name(f"{self._target.name}.partial")
        self.queries = 0
        self._name = name
        self._size = 0

    def __enter__(self) -> Self:
        self._file = private_files.open_private(self.partial, "wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._file.close()
            if self.partial != self.path:
                self.partial.replace(self._target)
            return
        with suppress(OSError):  # on a full disk the rest of the buffer cannot be written
            self._file.close()
        if self.partial != self.path:
            os.truncate(self.partial, self._size)

    def add(self, query: str, scores: Mapping[str, float]) -> None:
        """Add the documents of a query, best first; a query without documents has no line, as trec_eval expects."""
        written = lines(query, scores, self._name).encode()
        self._file.write(written)
        self._file.flush()  # a query counts once it is in the file
        self._size += len(written)
        self.queries += 1


def write(run: Run, path: Path) -> None:
    """Write a complete run."""
    with Writer(path, run.name) as writer:
        for query, scores in run.scores.items():
            writer.add(query, scores)


def lines(query: str, scores: Mapping[str, float], name: str) -> str:
    """Return the lines of one query; white space and "%" in ids are percent-encoded, because white space separates columns."""
    return "".join(
        f"{_word(query)} Q0 {_word(document)} {rank} {score:.9g} {_word(name)}\n"
        for rank, (document, score) in enumerate(strictly_decreasing(scores).items(), 1)
    )


def percent_encoded(ids: Iterable[str]) -> set[str]:
    """Return the ids that are percent-encoded in a run."""
    return {identity for identity in ids if _SPECIAL.search(identity)}


def encoding_remark(ids: set[str]) -> str:
    """Return a remark on the ids that `percent_encoded` returned."""
    contain, are = ("id contains", "It is") if len(ids) == 1 else ("ids contain", "They are")
    encoded = f"{are} percent-encoded in runs; termweave decodes them when it reads a run."
    return f"{len(ids):,} {contain} blanks or '%', or '=' or '@' at the beginning, for example {min(ids)!r}. {encoded}"


def read(path: Path) -> Run:
    """Read a run; the file may be compressed.

    Documents are ordered as trec_eval orders them: by score, equal scores by id, descending. The ranks and the order of the
    lines are ignored.

    Raises:
        UsageError: The file cannot be read.
        InputError: A line is not a line of a run, or repeats a document; the message gives the line.
    """
    import numpy as np  # noqa: PLC0415

    rankings: dict[str, dict[str, float]] = {}
    name, is_ours = path.stem, True
    for number, line in files.lines(path):
        try:
            query, _, document, _, text, name = text_line(line, "A run must be text in UTF-8.").split()
            score = float(text)
        except BadLine as bad:
            raise bad.at(str(path), number) from None
        except ValueError:
            score = math.nan
        if math.isnan(score):
            raise InputError(f"{path}, line {number}: not a line of a run.", "Six columns: query Q0 document rank score name.")
        if document in rankings.setdefault(query, {}):
            raise InputError(f"{path}, line {number}: document {document!r} for the second time.", "Keep one of the two.")
        rankings[query][document] = score
        is_ours = is_ours and all("%" not in word or _word(unquote(word)) == word for word in (query, document, name))
    # Ids of another program may be URLs. One escape that we would not write shows that no id is percent-encoded.
    decode = unquote if is_ours else str
    scores: dict[str, dict[str, float]] = {}
    for query, ranked in rankings.items():
        decoded = ((decode(document), score) for document, score in ranked.items())
        scores[decode(query)] = dict(sorted(decoded, key=lambda scored: (float(np.float32(scored[1])), scored[0]), reverse=True))
    return Run(decode(name), scores)


def _word(text: str) -> str:
    return _SPECIAL.sub(lambda match: quote(match.group()), text)
