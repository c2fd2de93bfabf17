"""Where documents, queries and judgements come from.

Readers are found by entry point (group `termweave.readers`): a format is one file here, or in another package, and
one line in a pyproject. Which reader a path belongs to is decided by content, never by its name.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from termweave import plugins
from termweave.corpora.files import spooled
from termweave.corpora.sources import Dataset, Progress, Skipped, Skips, Source
from termweave.errors import TermweaveError, UsageError

__all__ = ["Dataset", "Progress", "Skipped", "Skips", "Source", "open_dataset", "open_source"]

DEFAULT_SPLIT = "test"

_DATASETS = "A data set is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv) or `demo`."
_KINDS = "A source is a path (BEIR folder, JSON lines; plain or .gz), `-` for standard input, or `demo`."


def open_source(spec: str | Path, *, skip_bad: bool = False) -> Source:
    """The documents that a SOURCE argument means.

    Args:
        spec: A path, ``-`` for standard input, or the name of a built-in corpus (``demo``).
        skip_bad: Leave entries that cannot be read out, and list them in `Source.skipped`, instead of ending with an error.

    Raises:
        UsageError: There is nothing of this name, or no reader knows its format.
        InputError: It is a damaged file. Errors in single documents come from `Source.documents`.
    """
    spec = str(spec)
    if (copy := spooled(spec)) is None:
        source: Source = _reader(spec).open(spec, skip_bad=skip_bad)
        return source
    name = "stdin" if spec == "-" else Path(spec).name
    try:
        source = _reader(str(copy), name).open(str(copy), name=name, skip_bad=skip_bad)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    weakref.finalize(source, copy.unlink, missing_ok=True)
    return source


def open_dataset(spec: str | Path) -> Dataset:
    """The queries and judgements, and the corpus below them, that a DATASET argument means.

    Args:
        spec: A path or ``demo``, with ``:SPLIT`` behind it, or without for the split "test".

    Raises:
        UsageError: There is nothing of this name, it is no data set, or it has no such split.
    """
    spec, split = _split(str(spec))
    if spec == "-":
        raise UsageError("Standard input cannot be a data set.", "Name a BEIR folder, or `demo`.")
    reader = _reader(spec)
    if not hasattr(reader, "open_dataset"):
        raise UsageError(f"{spec} is a corpus without queries and judgements.", _DATASETS)
    dataset: Dataset = reader.open_dataset(spec, split)
    return dataset


def _split(spec: str) -> tuple[str, str]:
    """``PATH:SPLIT`` in two; a path that exists as it is written has no split, though it may hold a colon."""
    path, colon, split = spec.rpartition(":")
    if not colon or _exists(spec) or path == "ir":
        return spec, DEFAULT_SPLIT
    return path, split or DEFAULT_SPLIT


def _exists(spec: str) -> bool:
    try:
        return Path(spec).exists()
    except (OSError, ValueError):
        return False


def _reader(spec: str, shown: str = "") -> Any:
    """The first reader that recognises a path or name; one that goes by the very name comes first, the others by theirs.

    A reader whose package does not import stands in nobody's way but its own: its error is raised only where no
    other one takes the spec.
    """
    broken: TermweaveError | None = None
    for name in sorted(plugins.names("readers"), key=lambda name: name != spec):
        try:
            reader = plugins.load("readers", name)
        except UsageError as error:
            broken = error
            continue
        with suppress(OSError, ValueError):  # too long for a path, or a NUL in it: no path
            if reader.recognises(spec):
                return reader
    raise broken or _unknown(spec, shown or spec)


def _unknown(spec: str, shown: str) -> UsageError:
    if spec.startswith("ir:"):
        hint = "Export the set to a BEIR folder and name that."
        return UsageError(f"{spec}: sets of ir_datasets are not read by this version.", hint)
    if not _exists(spec):
        path, _, split = spec.rpartition(":")
        if path and _exists(path):
            return UsageError(f"There is no {spec}.", f"A corpus has no split {split!r}: say {path}.")
        return UsageError(f"There is no file or folder {spec!r}, and no built-in corpus of this name.", _KINDS)
    if Path(spec).is_dir():
        return UsageError(f"{spec} is a folder without corpus.jsonl or corpus.jsonl.gz.", _KINDS)
    return UsageError(f"{shown} is in no format that is known here.", _KINDS)
