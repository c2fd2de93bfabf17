"""Open corpora and data sets: documents, queries and judgements.

Readers are found by entry point (group `termweave.readers`): a new format is one file, here or in another package, and one line in
a pyproject.toml. The reader for a path is chosen by the content of the file, never by its name.

Documents that a Python program holds (dicts, `Document` records, DataFrames, Arrow tables, data sets of Hugging Face) are written to a temporary
file of JSON lines first. A build reads its source twice and needs a fingerprint of it, and an iterator can be read only once; with the file on
disk, memory stays flat however many documents come.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from termweave import plugins
from termweave.catalog.source_fields import Fields
from termweave.corpora.behaviour.clicks import ClickLog
from termweave.corpora.formats import addresses, compression, markup
from termweave.corpora.formats.fields import BadLine, json_value
from termweave.corpora.formats.lines import discard, head, hidden, new_copy, spooled, unpacked
from termweave.corpora.readers.beir import folders_in
from termweave.corpora.readers.jsonl import JsonLines
from termweave.corpora.readers.table import DELIMITERS
from termweave.corpora.readers.text_folder import TextFolder
from termweave.corpora.readers.text_folder import texts as texts_below
from termweave.corpora.sources import (
    DEFAULT_SPLIT,
    ITEM,
    Dataset,
    DatasetReader,
    IndexReading,
    NotAnIndex,
    OpenedSource,
    Reader,
    Reading,
    Source,
)
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Document
from termweave.support.arguments import texts
from termweave.support.messages import few, without_password

__all__ = ["Dataset", "IndexReading", "OpenedSource", "Source", "open_dataset", "open_documents", "open_source"]

#: Beginnings of the addresses of indices, which have colons and no splits.
_INDICES = (*addresses.PREFIXES, "http://", "https://")
_DATASETS = (
    "A data set is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), `ir:NAME`, `book:NAME`, `ubi:FOLDER`, `ubi:opensearch`, "
    "a click log (lines of query, document id and count, with tabs between them) or `demo`."
)

#: Rows of a table that become Python objects at one time.
_TABLE_ROWS = 1024
_ACCEPTED = "an iterable of dicts or termweave.Document, a pandas or polars DataFrame, an Arrow table or a datasets.Dataset"


def _fields(id_field: str | None, title_field: str | None, text_fields: Sequence[str]) -> Fields:
    """Collect the fields that a caller names for id, title and text."""
    return Fields(id_field, title_field, tuple(texts("text_fields", "names", "The name of a field", text_fields)))


def open_source(
    spec: str | Path,
    *,
    skip_bad: bool = False,
    id_field: str | None = None,
    title_field: str | None = None,
    text_fields: Sequence[str] = (),
    include: Sequence[str] = (),
    index: IndexReading | None = None,
    follow_links: bool = False,
    list_separator: str = "",
) -> OpenedSource:
    """Open the corpus that a SOURCE argument names.

    Args:
        spec: A path, an http(s) address of a file, ``-`` for standard input, ``opensearch:INDEX`` or ``https://HOST:9200/INDEX``, ``ir:NAME``,
            or the name of a built-in corpus (``demo``).
        skip_bad: Skip entries that cannot be read and list them in `Source.skipped`, instead of raising an error.
        id_field: Key or column of the id, if it has an unusual name; in a table without a header line the column's number, from 1.
        title_field: Key or column of the title, in the same way.
        text_fields: Keys or columns of the text, in the same way; several are joined by line ends.
        include: Patterns such as ``*.py`` of the files to read in a folder, whatever their type; (): the files of known types are read.
        index: How an index is read; None: all of its documents are read, with the credentials of the settings.
        follow_links: Read files in a folder that are links to files outside it, too.
        list_separator: In a table: the text between the items of a list; a cell of the metadata that contains it becomes a list; "": no cell does.

    Raises:
        UsageError: The source does not exist, its format is unknown, or it lacks a field that was named.
        InputError: The file is damaged. Errors in single documents are raised by `Source.documents`.
    """
    spec, fields = _spec(spec, "source"), _fields(id_field, title_field, text_fields)
    if twice := {name for name in fields.named() if fields.named().count(name) > 1}:
        raise UsageError(f"The field {min(twice)!r} is named twice.", "Use each field for one of id, title and text.")
    for flag, use, value in (("--include", "names files", include), ("--follow-links", "is for links", follow_links)):
        if value and not Path(spec).is_dir():
            message = f"{flag} {use} in a folder, and {without_password(spec)} is not a folder."
            raise UsageError(message, f"Name a folder, or remove {flag}.")
    reading = Reading(None, skip_bad, fields, tuple(include), index or IndexReading(), follow_links, list_separator)
    with ExitStack() as copies:
        reader, source = _open(spec, reading, copies)
        weakref.finalize(source, copies.pop_all().close)
    if list_separator and not reader.SEPARATES:
        raise UsageError(f"--list-separator is for cells of a table, and {source.name} is not a table.", "Remove the option.")
    return source


def _open(spec: str, reading: Reading, copies: ExitStack) -> tuple[type[Reader], OpenedSource]:
    """Open a source and return its reader and the source; closing `copies` removes the temporary files that the source needs.

    Raises:
        UsageError: No file of a folder matches the given patterns, the format has no named fields, or the reader cannot open the source.
    """
    is_index = addresses.is_index(spec)
    if is_index:
        with suppress(NotAnIndex):
            reader = plugins.load("readers", "index")
            return reader, reader.open(spec, reading)
    path = Path(spec)
    if copy := addresses.downloaded(spec) if is_index or addresses.is_file(spec) else spooled(spec):
        copies.callback(discard, copy)
        path = copy
    shown = spec if copy is None else "stdin" if spec == "-" else Path(compression.called(copy)).name
    if not reading.include:
        reader = _reader(str(copy or spec), shown)
    elif next(texts_below(path, replace(reading, follow_links=True)), None) is not None:
        reader = TextFolder
    else:
        raise UsageError(f"No file in {spec} matches {few(list(reading.include))}.", "Write a pattern such as '*.py', in quotes.")
    if reading.fields and not reader.MAPPED:
        options = "--id-field, --title-field and --text-field"
        raise UsageError(f"{options} cannot be used with {reader.LABEL}, which has no named fields.", "Remove these options.")
    if reader.SEEKS and compression.is_packed(path):
        copy = path = unpacked(path)
        copies.callback(discard, copy)
    return reader, reader.open(str(copy or spec), replace(reading, name=Path(shown).name if copy else None))


def open_dataset(spec: str | Path) -> Dataset:
    """Open the data set that a DATASET argument names: a corpus with queries and judgements.

    Args:
        spec: A path, ``ir:NAME``, ``book:NAME``, ``ubi:FOLDER`` or ``demo``, perhaps followed by ``:SPLIT`` (without it, the default split is
            opened); or the path of a click log.

    Raises:
        UsageError: The data set does not exist, is a corpus only, or has no such split.
    """
    spec, split = path_and_split(_spec(spec, "data set"))
    if spec == "-" or addresses.is_file(spec):
        raise UsageError("A data set cannot be standard input or a file at an address.", f"Save it in a folder. {_DATASETS}")
    return _dataset_reader(spec).open_dataset(spec, DEFAULT_SPLIT if split is None else split)


def check_dataset(spec: str) -> None:
    """Check that a reader of data sets recognises a path or name, without opening the data set.

    Raises:
        UsageError: There is no such file, folder or name, or it has no judgements.
    """
    _dataset_reader(path_and_split(spec)[0])


def _dataset_reader(spec: str) -> type[DatasetReader]:
    if ClickLog.recognises(spec):  # such a file is a table, too
        return ClickLog
    reader: type[DatasetReader] = _reader(spec, spec, kinds=_DATASETS)
    if not reader.JUDGED:
        raise UsageError(f"{without_password(spec)} is a corpus without queries and judgements.", _DATASETS)
    return reader


def _spec(spec: object, kind: str) -> str:
    """Return a SOURCE or DATASET argument as text.

    Raises:
        UsageError: The argument is neither a path nor a name.
    """
    if not isinstance(spec, str | os.PathLike):
        hint = "Write your documents to a file of JSON lines: a build reads the file twice, and later updates read it again."
        raise UsageError(f"A {kind} must be a path or a name, not {type(spec).__name__}.", hint)
    return str(spec)


def path_and_split(spec: str) -> tuple[str, str | None]:
    """Cut ``PATH:SPLIT`` into path and split; None: no split is named. The address of an index and a path that exists stay whole."""
    path, colon, split = spec.rpartition(":")
    if not colon or exists(spec) or path in {"book", "ir", "ubi"} or spec.startswith(_INDICES):
        return spec, None
    return path, split


def exists(spec: str) -> bool:
    """Whether a path exists; False for a text that cannot be a path, or that lies in a folder which may not be read."""
    try:
        return bool(spec) and Path(spec).exists()
    except (OSError, ValueError):
        return False


def _reader(spec: str, shown: str, *, kinds: str = "") -> Any:
    """Find the first reader that recognises a path or name; a reader whose own name is `spec` is asked first, the others in alphabetical order.

    A reader whose package cannot be imported does not block the others: its error is raised only if no other reader recognises the spec.

    Raises:
        UsageError: No reader recognises the spec.
    """
    broken: TermweaveError | None = None
    readers = []
    for name in sorted(plugins.names("readers"), key=lambda name: name != spec):
        try:
            reader = plugins.load("readers", name)
        except UsageError as error:
            broken = error
            continue
        with plugins.answerable("readers", name), suppress(OSError, ValueError):  # too long for a path, or with a NUL
            if spec and reader.recognises(spec):  # Path("") is the working folder
                return reader
        readers.append(reader)
    if not kinds:
        labels = ", ".join(reader.LABEL for reader in readers if not reader.LABEL.endswith("(data sets only)"))
        kinds = f"A source is one of: {labels}; files may be compressed (.gz, .zst), and `-` is standard input."
    raise broken or _unknown(spec, shown, kinds)


def _unknown(spec: str, shown: str, kinds: str) -> UsageError:
    """Make the error for a source or data set that no reader recognises, with the most likely reason; `kinds` lists what readers recognise."""
    if hidden(spec):
        return UsageError(f"This user may not read {spec}.", "Change the permissions, or name another source.")
    if not exists(spec):
        whole, _, split = spec.rpartition(":")
        if whole and exists(whole):
            return UsageError(f"There is no {spec}.", f"A corpus has no splits: write {whole} without {split!r}.")
        return UsageError(f"There is no file or folder {spec!r}, and no built-in corpus of this name.", kinds)
    if (path := Path(spec)).is_dir():
        return _no_source(path, kinds)
    start = head(path)
    if foreign := compression.foreign(start):
        return UsageError(f"{shown} is {foreign[0]}, which termweave does not read.", foreign[1])
    binary = b"\0" in start
    wrong, alone = f"The format of {shown} is not known.", f"{path.parent} --include {path.name!r}."
    hint = f"The columns of a table are separated by {', '.join(DELIMITERS.values())}, or by the character that a first line like `sep=^` names."
    if path.suffix.lower() in markup.KINDS and not binary:
        wrong, hint = f"{shown} is a text, not a table or JSON lines.", f"Name its folder; to read this file alone: {alone}"
    elif kinds != _DATASETS:
        hint = f"If it is a text, read it alone with: {alone} {hint}"
    return UsageError(wrong, kinds if binary else f"{hint} {kinds}")


def _no_source(folder: Path, kinds: str) -> UsageError:
    """Make the error for a folder that is not a source; its message names the BEIR folders in this folder."""
    if not (inside := folders_in(folder)):
        suffixes = ", ".join(markup.KINDS)
        hint = f"--include '*.py' names files of another type. {kinds}"
        return UsageError(f"{folder} is a folder without corpus.jsonl and without text files ({suffixes}).", hint)
    names = few([f"{each}/" for each in inside])
    are = "is a BEIR folder" if len(inside) == 1 else "are BEIR folders"
    return UsageError(f"{folder} is not a source itself, but {names} in it {are}.", f"Name one: {folder / inside[0]}")


def open_documents(
    documents: object,
    *,
    name: str = "documents",
    skip_bad: bool = False,
    id_field: str | None = None,
    title_field: str | None = None,
    text_fields: Sequence[str] = (),
) -> OpenedSource:
    """Make a source of documents that a program holds.

    Args:
        documents: An iterable of dicts or `Document` records, a pandas or polars DataFrame, an Arrow table, or a
            ``datasets.Dataset``. Each dict or row is one document; its keys mean what they mean in a JSON-lines file
            (``id``, ``title``, ``text``; everything else is metadata).
        name: What messages call the source.
        skip_bad: Leave out documents that cannot be read, instead of raising an error.
        id_field: The key that holds the id, if this key is not a usual one.
        title_field: The key that holds the title, if this key is not ``title``.
        text_fields: The keys that hold the text; several are joined by line ends.

    Raises:
        UsageError: `documents` is none of the above, or an item of it is neither a dict nor a `Document`.
        InputError: The temporary file cannot be written.

    Example:
        >>> source = open_documents([{"id": "a", "text": "first"}, {"id": "b", "text": "second", "year": 1999}])
        >>> [(document.id, dict(document.metadata)) for document in source.documents()]
        [('a', {}), ('b', {'year': 1999})]
    """
    rows = _items(documents)
    with new_copy(name) as file:
        file.writelines(_line(row, number, name) for number, row in enumerate(rows, start=1))
    path = Path(file.name)
    source = JsonLines(path, Reading(name, skip_bad, _fields(id_field, title_field, text_fields)))
    source.ENTRY = ITEM
    weakref.finalize(source, discard, path)
    return source


def _items(documents: object) -> Iterator[object]:
    """Iterate over documents, one item for each. Tables are recognised by their methods, so that no library of tables is imported."""
    if isinstance(documents, str | bytes | Path | Mapping | Document):
        kind = type(documents).__name__
        hint = "termweave.corpora.open_source reads files." if isinstance(documents, str | Path) else "Put it into a list."
        raise UsageError(f"documents must be {_ACCEPTED}, not one {kind}.", hint)
    table: Any = documents
    if hasattr(table, "iter_rows") and hasattr(table, "columns"):  # polars
        return iter(table.iter_rows(named=True))
    if hasattr(table, "itertuples") and hasattr(table, "columns"):  # pandas
        columns = [str(column) for column in table.columns]
        return (dict(zip(columns, row, strict=True)) for row in table.itertuples(index=False, name=None))
    if hasattr(table, "to_batches") and hasattr(table, "schema"):  # pyarrow
        return (row for batch in table.to_batches(max_chunksize=_TABLE_ROWS) for row in batch.to_pylist())
    if isinstance(table, Iterable):
        return iter(table)
    raise UsageError(f"documents must be {_ACCEPTED}, not {type(documents).__name__}.", "Pass a list of dicts, for example.")


def _line(row: object, number: int, name: str) -> bytes:
    """Write one document as a line of JSON."""
    if isinstance(row, Document):
        row = {"_id": row.id, "title": row.title, "text": row.text, "metadata": dict(row.metadata)}
    if not isinstance(row, Mapping):
        message = f"Item {number:,} of {name} has the type {type(row).__name__}: a document is a dict or a termweave.Document."
        raise UsageError(message, 'Write {"id": ..., "text": ...} for each document.')
    try:
        return orjson.dumps(json_value(row), option=orjson.OPT_APPEND_NEWLINE)
    except (BadLine, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"Item {number:,} of {name} cannot be written as JSON: {error}.", "Use values that JSON has.") from error
