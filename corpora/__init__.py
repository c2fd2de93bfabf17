"""Where documents, queries and judgements come from.

Readers are found by entry point (group `termweave.readers`): a format is one file here, or in another package, and
one line in a pyproject. Which reader a path belongs to is decided by content, never by its name.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.corpora import packing
from termweave.corpora.beir import folders_in
from termweave.corpora.dialect import DELIMITERS
from termweave.corpora.files import discard, head, hidden, spooled, unpacked
from termweave.corpora.sources import DEFAULT_SPLIT, Dataset, Fields, Opened, Progress, Reading, Skipped, Skips, Source
from termweave.errors import TermweaveError, UsageError
from termweave.words import few

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Dataset",
    "Opened",
    "Progress",
    "Skipped",
    "Skips",
    "Source",
    "exists",
    "open_dataset",
    "open_source",
    "path_and_split",
]

_DATASETS = "A data set is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), `ir:NAME` or `demo`."


def open_source(
    spec: str | Path,
    *,
    skip_bad: bool = False,
    id_field: str | None = None,
    title_field: str | None = None,
    text_fields: Sequence[str] = (),
) -> Opened:
    """The documents that a SOURCE argument means.

    Args:
        spec: A path, ``-`` for standard input, ``ir:NAME``, or the name of a built-in corpus (``demo``).
        skip_bad: Leave entries that cannot be read out, and list them in `Source.skipped`, instead of ending with an error.
        id_field: The key or column that holds the id, where it is not called like one; a column's number, counted from 1, in a
            table without a header line.
        title_field: That of the title, likewise.
        text_fields: Those of the text, likewise; several are joined by line ends.

    Raises:
        UsageError: There is nothing of this name, no reader knows its format, or it has no such field.
        InputError: It is a damaged file. Errors in single documents come from `Source.documents`.
    """
    if isinstance(text_fields, str):
        raise UsageError(
            f"text_fields is a list of names, not the text {text_fields!r}.", f"Write text_fields=[{text_fields!r}]."
        )
    spec, fields = _spec(spec, "source"), Fields(id_field, title_field, tuple(text_fields))
    if twice := {name for name in fields.named() if fields.named().count(name) > 1}:
        raise UsageError(f"The field {min(twice)!r} is named twice.", "Each is one of id, title and text.")
    copies: list[Path] = []
    try:
        if copy := spooled(spec):
            copies.append(copy)
        shown = spec if copy is None else "stdin" if spec == "-" else Path(spec).name
        path = spec if copy is None else str(copy)
        reader = _reader(path, shown, mapped=bool(fields))
        if reader.SEEKS and packing.is_packed(Path(path)):
            copies.append(unpacked(Path(path)))
            path = str(copies[-1])
        name = Path(shown).name if copies else None
        source: Opened = reader.open(path, Reading(name, skip_bad, fields))
    except BaseException:
        _remove(copies)
        raise
    if copies:
        weakref.finalize(source, _remove, copies)
    return source


def _remove(copies: list[Path]) -> None:
    for copy in copies:
        discard(copy)


def open_dataset(spec: str | Path) -> Dataset:
    """The queries and judgements, and the corpus below them, that a DATASET argument means.

    Args:
        spec: A path or ``demo``, with ``:SPLIT`` behind it, or without for the split "test".

    Raises:
        UsageError: There is nothing of this name, it is no data set, or it has no such split.
    """
    spec, split = path_and_split(_spec(spec, "data set"))
    if spec == "-":
        raise UsageError("Standard input cannot be a data set.", "Name a BEIR folder, `ir:NAME`, or `demo`.")
    reader = _reader(spec, spec)
    if not hasattr(reader, "open_dataset"):
        raise UsageError(f"{spec} is a corpus without queries and judgements.", _DATASETS)
    dataset: Dataset = reader.open_dataset(spec, DEFAULT_SPLIT if split is None else split)
    return dataset


def _spec(spec: object, what: str) -> str:
    if not isinstance(spec, str | os.PathLike):
        hint = "Documents of your own go into JSON lines first, for they are read twice, and found again by a later update."
        raise UsageError(f"A {what} is a path or a name, not {type(spec).__name__}.", hint)
    return str(spec)


def path_and_split(spec: str) -> tuple[str, str | None]:
    """``PATH:SPLIT`` in two, None where no split is named; a path that exists as it is written has none, though it may hold a colon."""
    path, colon, split = spec.rpartition(":")
    if not colon or exists(spec) or path == "ir":
        return spec, None
    return path, split


def exists(spec: str) -> bool:
    """Whether a path is there; what cannot be one (too long, a NUL in it, below what may not be read) is not."""
    try:
        return bool(spec) and Path(spec).exists()
    except (OSError, ValueError):
        return False


def _reader(spec: str, shown: str, *, mapped: bool = False) -> Any:
    """The first reader that recognises a path or name; one that goes by the very name comes first, the others by theirs.

    A reader whose package does not import stands in nobody's way but its own: its error is raised only where no
    other one takes the spec.
    """
    broken: TermweaveError | None = None
    readers = []
    for name in sorted(plugins.names("readers"), key=lambda name: name != spec):
        try:
            reader = plugins.load("readers", name)
        except UsageError as error:
            broken = error
            continue
        with plugins.answerable("readers", name), suppress(OSError, ValueError):  # too long for a path, or a NUL in it: no path
            if spec and reader.recognises(spec):  # Path("") would be the working folder
                if mapped and not reader.MAPPED:
                    options = "--id-field, --title-field and --text-field"
                    raise UsageError(f"{options} do not go with {reader.LABEL}: there are no fields in it.", "Leave them out.")
                return reader
        readers.append(reader)
    raise broken or _unknown(spec, shown, [reader.LABEL for reader in readers])


def _unknown(spec: str, shown: str, labels: list[str]) -> UsageError:
    kinds = f"A source is one of: {', '.join(labels)}; files may be packed (.gz, .zst), and `-` is standard input."
    if hidden(spec):
        return UsageError(f"{spec} may not be read by this user.", "Change its permissions, or name what you may read.")
    if not exists(spec):
        path, _, split = spec.rpartition(":")
        if path and exists(path):
            return UsageError(f"There is no {spec}.", f"A corpus has no split {split!r}: say {path}.")
        return UsageError(f"There is no file or folder {spec!r}, and no built-in corpus of this name.", kinds)
    if Path(spec).is_dir():
        return _no_source(Path(spec), kinds)
    start = head(Path(spec))
    if said := packing.foreign(start):
        return UsageError(f"{shown} is {said[0]}, and that is not read.", said[1])
    known = ", ".join(DELIMITERS.values())
    table = f"Between the columns of a table stand {known}, or the character that a first line like `sep=^` names. "
    return UsageError(f"{shown} is in no format that is known here.", ("" if b"\0" in start else table) + kinds)


def _no_source(folder: Path, kinds: str) -> UsageError:
    if not (inside := folders_in(folder)):
        return UsageError(f"{folder} is a folder without corpus.jsonl, and without a file of text (.txt, .md, .html).", kinds)
    named = few([f"{each}/" for each in inside])
    are = "is a BEIR folder" if len(inside) == 1 else "are BEIR folders"
    return UsageError(f"{folder} is no source itself: in it {named} {are}.", f"Name one: {folder / inside[0]}")
