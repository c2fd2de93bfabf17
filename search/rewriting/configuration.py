"""The option `--rewrite`: ``operators``, ``spelling``, ``synonyms@FILE`` and ``pins@FILE``, separated by commas."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from termweave.corpora.readers.table import dialect_of
from termweave.errors import UsageError
from termweave.search.rewriting import synonyms
from termweave.search.rewriting.synonyms import Synonyms
from termweave.support.messages import counted
from termweave.support.normal_form import normalised

if TYPE_CHECKING:
    #: Query, id of the document, action.
    Row = tuple[str, str, str]

_FORM = "Write operators, spelling, synonyms@FILE or pins@FILE, separated by commas, or none."
_FILES = ("synonyms@", "pins@")
#: The columns of a table of pins, the actions of a row, and the most documents of one query.
_COLUMNS = ("query", "document", "action")
_ACTIONS = ("pin", "hide")
_MOST_OF_QUERY = 100
_TABLE = "Write a table with the columns query, document and action (pin or hide), one document in a row."


@dataclass(frozen=True, slots=True)
class QueryPins:
    """The pins of one query.

    Attributes:
        first: Ids of the documents that come first, in this order.
        hidden: Ids of the documents that never appear.
    """

    first: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewriting:
    """How queries are rewritten before they are searched.

    Attributes:
        operators: Whether ``"a phrase"`` and ``-word`` are filters.
        spelling: Whether a word that no document holds is replaced by the nearest word that one does.
        synonyms: Rules of synonyms in Solr's format (`termweave.search.rewriting.synonyms`).
        pins: Rows of query, document and "pin" or "hide" (`read_pins`).
    """

    operators: bool = False
    spelling: bool = False
    synonyms: tuple[str, ...] = ()
    pins: tuple[Row, ...] = ()

    @classmethod
    def stored(cls, parameters: Mapping[str, Any]) -> Rewriting:
        """Make the rewriting that a profile stores as JSON values.

        Raises:
            UsageError: The stored synonyms or pins cannot be read.
        """
        return _stored(orjson.dumps(parameters))

    def with_pins(self, others: tuple[Row, ...]) -> Rewriting:
        """Return this rewriting with other pins, such as a profile's, unless it has pins of its own or is "none"."""
        return self if self.pins or self == NOTHING else replace(self, pins=others)

    def check(self) -> None:
        """Read synonyms and pins, so that a mistake in them is reported before anything is searched.

        Raises:
            UsageError: The synonyms or the pins cannot be read.
        """
        _ = self.rules, self.of_queries

    def __str__(self) -> str:
        rules, pinned = len(self.synonyms), len(self.of_queries)
        steps = [
            ("operators", self.operators),
            ("spelling", self.spelling),
            (counted(rules, "rule") + " of synonyms", rules),
            ("pins of " + counted(pinned, "query", "queries"), pinned),
        ]
        return ", ".join(name for name, done in steps if done) or "none"

    @cached_property
    def rules(self) -> Synonyms:
        """The rules of the synonyms, ready to be applied.

        Raises:
            UsageError: A rule cannot be read.
        """
        return Synonyms.parse(self.synonyms)

    @cached_property
    def of_queries(self) -> Mapping[str, QueryPins]:
        """Normalised text of a query -> the pins of this query.

        Raises:
            UsageError: A row of the pins cannot be read.
        """
        return parse_pins(self.pins)


#: What `none` stands for.
NOTHING = Rewriting()


@lru_cache(8)
def _stored(content: bytes) -> Rewriting:
    """Do the work of `Rewriting.stored`, once for many searches, because a profile may have thousands of rules."""
    parameters = orjson.loads(content)
    lists = {"synonyms": tuple(parameters.get("synonyms", ())), "pins": tuple(map(tuple, parameters.get("pins", ())))}
    rewriting = Rewriting(**{**parameters, **lists})
    rewriting.check()
    return rewriting


def parse(value: object) -> Rewriting | None:
    """Read the value of `--rewrite`. None stays None, and means that the profile decides.

    Raises:
        UsageError: The value names something else, or a file cannot be read.

    Example:
        >>> parse("operators, spelling")
        Rewriting(operators=True, spelling=True, synonyms=(), pins=())
    """
    if value is None or isinstance(value, Rewriting):
        return value
    if not isinstance(value, str):
        raise UsageError(f"rewrite is a text, not {type(value).__name__}.", _FORM)
    names = [each.strip() for each in value.split(",")]
    if names == ["none"]:
        return NOTHING
    unknown = [each for each in names if each not in {"operators", "spelling"} and not each.startswith(_FILES)]
    files = {kind: [each.removeprefix(kind) for each in names if each.startswith(kind)] for kind in _FILES}
    if unknown or len(set(names)) < len(names):
        message = f"A query cannot be rewritten by {unknown[0]!r}." if unknown else f"{value!r} names something twice."
        raise UsageError(message, _FORM)
    rewriting = Rewriting(
        "operators" in names,
        "spelling" in names,
        tuple(line for each in files["synonyms@"] for line in synonyms.read(each)),
        tuple(row for each in files["pins@"] for row in read_pins(each)),
    )
    rewriting.check()
    return rewriting


@lru_cache(8)
def parse_pins(rows: tuple[Row, ...]) -> Mapping[str, QueryPins]:
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
            shown = ", ".join(map(str, row))
            raise UsageError(f"Row {number} of the pins, {shown!r}, does not name a query, a document and pin or hide.", _TABLE)
        documents = actions.setdefault(normalised(query), {})
        if documents.setdefault(document, action) != action:
            message = f"Row {number} of the pins contradicts another row: for the query {query!r}, one pins the document {document!r}, and the other hides it."
            raise UsageError(message, _TABLE)
        if len(documents) > _MOST_OF_QUERY:
            raise UsageError(f"The pins name more than {_MOST_OF_QUERY} documents for {query!r}.", "Leave some of them out.")
        size += len(query) + len(document) + len(action)
    if size > synonyms.MOST:
        raise UsageError(f"The pins have {size:,} characters.", f"At most {synonyms.MOST:,} are read: leave rows out.")
    return {
        query: QueryPins(*(tuple(name for name, action in documents.items() if action == each) for each in _ACTIONS))
        for query, documents in actions.items()
    }


def read_pins(path: str) -> tuple[Row, ...]:
    """Read the rows of a file with a table of pins (CSV or TSV).

        query,document,action
        robot in space,10681,pin
        robot in space,2048,hide

    Pinned documents come in the order of the rows. Queries are compared without regard to case and to blanks.

    Raises:
        UsageError: The file cannot be read, or does not hold such a table.
    """
    text = synonyms.read_text(path, "pins")
    dialect = dialect_of(text, whole=True)
    names = [cell.strip().lower() for cell in dialect.first] if dialect else []
    if dialect is None or not set(_COLUMNS) <= set(names):
        raise UsageError(f"The file of pins {path!r} has no columns {', '.join(_COLUMNS)}, or no row below them.", _TABLE)
    reader = csv.DictReader(StringIO(text, newline=""), names, restval="", **dialect.options())  # type: ignore[call-overload]
    try:
        cells = [[(row[name] or "").strip() for name in _COLUMNS] for row in islice(reader, 1 + dialect.announced, None)]
        rows = tuple((query, document, action.lower()) for query, document, action in cells if query or document or action)
        parse_pins(rows)
    except csv.Error as error:
        raise UsageError(f"{path} cannot be read at line {reader.reader.line_num}: {error}.", _TABLE) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    return rows
