"""Pins: a table that names, for the text of a query, documents that come first and documents that never appear.

    query,document,action
    robot in space,10681,pin
    robot in space,862,pin
    robot in space,2048,hide

Such a table (CSV or TSV) has one row for each query and document. Pinned documents come in the order of the rows. Queries are compared
without regard to case and to blanks.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING

from termweave.corpora.readers.table import dialect_of
from termweave.errors import UsageError
from termweave.search.rewriting.synonyms import MOST, read_text
from termweave.support.normal_form import normalised

if TYPE_CHECKING:
    from collections.abc import Mapping

    #: Query, id of the document, action.
    Row = tuple[str, str, str]

_COLUMNS = ("query", "document", "action")
_ACTIONS = ("pin", "hide")
#: Documents of one query.
_MOST_OF_QUERY = 100
_FORM = "Write a table with the columns query, document and action (pin or hide), one document in a row."


@dataclass(frozen=True, slots=True)
class QueryPins:
    """The pins of one query.

    Attributes:
        first: Ids of the documents that come first, in this order.
        hidden: Ids of the documents that never appear.
    """

    first: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@lru_cache(8)
def parse(rows: tuple[Row, ...]) -> Mapping[str, QueryPins]:
    """Read rows of pins: normalised text of a query -> its pins.

    The result is kept, because a profile may have thousands of rows, which several searches read.

    Raises:
        UsageError: A row lacks something or contradicts another row, or there are too many.
    """
    actions: dict[str, dict[str, str]] = {}
    size = 0
    for number, row in enumerate(rows, 1):
        query, document, action = (*map(str, row), "", "", "")[: len(_COLUMNS)]
        if not query.strip() or not document or action not in _ACTIONS:
            message = (
                f"Row {number} of the pins, {', '.join(map(str, row))!r}, does not name a query, a document and pin or hide."
            )
            raise UsageError(message, _FORM)
        documents = actions.setdefault(normalised(query), {})
        if documents.setdefault(document, action) != action:
            message = f"Row {number} of the pins hides what another row pins for {query!r}, or the other way round: {document}."
            raise UsageError(message, _FORM)
        if len(documents) > _MOST_OF_QUERY:
            raise UsageError(f"The pins name more than {_MOST_OF_QUERY} documents for {query!r}.", "Leave some of them out.")
        size += len(query) + len(document) + len(action)
    if size > MOST:
        raise UsageError(f"The pins have {size:,} characters.", f"At most {MOST:,} are read: leave rows out.")
    return {
        query: QueryPins(*(tuple(name for name, action in documents.items() if action == each) for each in _ACTIONS))
        for query, documents in actions.items()
    }


def read(path: str) -> tuple[Row, ...]:
    """Read the rows of a file with a table of pins.

    Raises:
        UsageError: The file cannot be read, or does not hold such a table.
    """
    text = read_text(path, "pins")
    dialect = dialect_of(text, whole=True)
    names = [cell.strip().lower() for cell in dialect.first] if dialect else []
    if dialect is None or not set(_COLUMNS) <= set(names):
        raise UsageError(f"The file of pins {path!r} has no columns {', '.join(_COLUMNS)}, or no row below them.", _FORM)
    reader = csv.DictReader(StringIO(text, newline=""), names, restval="", **dialect.options())  # type: ignore[call-overload]
    try:
        cells = [[(row[name] or "").strip() for name in _COLUMNS] for row in islice(reader, 1 + dialect.announced, None)]
        rows = tuple((query, document, action.lower()) for query, document, action in cells if query or document or action)
        parse(rows)
    except csv.Error as error:
        raise UsageError(f"{path} cannot be read at line {reader.reader.line_num}: {error}.", _FORM) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    return rows
