"""Documents that a Python program holds: dicts, `Document` records, DataFrames, Arrow tables, data sets of Hugging Face.

The documents are written to a temporary file of JSON lines first. A build reads its source twice and needs a fingerprint of it,
and an iterator can be read only once; with the file on disk, memory stays flat however many documents come.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog.source_fields import Fields
from termweave.corpora.formats.fields import BadLine, json_value
from termweave.corpora.formats.lines import discard, new_copy
from termweave.corpora.readers.jsonl import JsonLines
from termweave.corpora.sources import ITEM, OpenedSource, Reading
from termweave.errors import InputError, UsageError
from termweave.records import Document
from termweave.support.arguments import field_names

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Rows of a table that become Python objects at one time.
_ROWS = 1024
_ACCEPTED = "an iterable of dicts or termweave.Document, a pandas or polars DataFrame, an Arrow table or a datasets.Dataset"


class _Items(JsonLines):
    """The temporary file. A line of it is an item of what the program holds."""

    ENTRY = ITEM


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
        skip_bad: Leave out documents that cannot be read, instead of raising.
        id_field: The key that holds the id, if it has another name.
        title_field: The key that holds the title, if it has another name.
        text_fields: The keys that hold the text; several are joined by line ends.

    Raises:
        UsageError: `documents` is none of the above, or an item of it is no dict.
        InputError: The temporary file cannot be written.

    Example:
        >>> source = open_documents([{"id": "a", "text": "first"}, {"id": "b", "text": "second", "year": 1999}])
        >>> [(document.id, dict(document.metadata)) for document in source.documents()]
        [('a', {}), ('b', {'year': 1999})]
    """
    rows = _rows(documents)
    with new_copy(name) as file:
        for number, row in enumerate(rows, start=1):
            file.write(_line(row, number, name))
    path = Path(file.name)
    source = _Items(path, Reading(name, skip_bad, Fields(id_field, title_field, field_names(text_fields))))
    weakref.finalize(source, discard, path)
    return source


def _rows(documents: object) -> Iterator[object]:
    """One item per document. Tables are told apart by their methods, so that none of their libraries is imported."""
    if isinstance(documents, str | bytes | Path | Mapping | Document):
        kind = type(documents).__name__
        hint = "termweave.corpora.open_source reads files." if isinstance(documents, str | Path) else "Put it into a list."
        raise UsageError(f"documents is {_ACCEPTED}, not one {kind}.", hint)
    table: Any = documents
    if hasattr(table, "iter_rows") and hasattr(table, "columns"):  # polars
        return iter(table.iter_rows(named=True))
    if hasattr(table, "itertuples") and hasattr(table, "columns"):  # pandas
        columns = [str(column) for column in table.columns]
        return (dict(zip(columns, row, strict=True)) for row in table.itertuples(index=False, name=None))
    if hasattr(table, "to_batches") and hasattr(table, "schema"):  # pyarrow
        return (row for batch in table.to_batches(max_chunksize=_ROWS) for row in batch.to_pylist())
    if isinstance(table, Iterable):
        return iter(table)
    raise UsageError(f"documents is {_ACCEPTED}, not {type(documents).__name__}.", "Pass a list of dicts, for example.")


def _line(row: object, number: int, name: str) -> bytes:
    """One document as a line of JSON."""
    if isinstance(row, Document):
        row = {"_id": row.id, "title": row.title, "text": row.text, "metadata": dict(row.metadata)}
    if not isinstance(row, Mapping):
        message = f"Item {number:,} of {name} is {type(row).__name__}, and a document is a dict or a termweave.Document."
        raise UsageError(message, 'Write {"id": ..., "text": ...} for each document.')
    try:
        return orjson.dumps(json_value(row), option=orjson.OPT_APPEND_NEWLINE)
    except (BadLine, TypeError, ValueError, RecursionError) as error:
        hint = "Turn its values into texts, numbers, lists or dicts."
        raise InputError(f"Item {number:,} of {name} cannot be written as JSON: {error}.", hint) from error
