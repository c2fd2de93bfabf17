"""Entries with named fields (JSON objects, rows of a table) to documents: which field is what, and what a field may hold.

Without being told (the first name that is there counts; what is left over is metadata):

    id      ``_id``, ``id``, ``docid``, ``doc_id``; a whole number becomes its digits. A source whose first entry has
            none is numbered by its lines, and then no other entry may have one: the two would collide.
    title   ``title``; may be missing, null or empty.
    text    ``text``, ``contents``, ``body``, ``content``; may be null or empty, and missing where there is a title.

BEIR's own ``metadata`` object is merged into the metadata; a field beside it wins over the same name in it.
"""

from __future__ import annotations

import math
from datetime import date, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from termweave.corpora import files
from termweave.corpora.sources import Fields, place
from termweave.errors import InputError, UsageError
from termweave.records import Document
from termweave.words import clipped, few, sized

if TYPE_CHECKING:
    from collections.abc import Callable

ID_KEYS = ("_id", "id", "docid", "doc_id")
TEXT_KEYS = ("text", "contents", "body", "content")
TITLE_KEY = "title"

_SKIPPED = ", or leave such entries out with --skip-bad."
SKIP_HINT = f"Mend it{_SKIPPED}"
#: Characters of a value, and fields of an entry, that a message shows.
_MANY, _NAMED = 40, 12


class BadLine(ValueError):
    """Why one entry cannot be read: a clause that goes behind "corpus.jsonl, line 7: "."""

    #: Where it stands, as messages name it, in a source of several files; "": in the source itself.
    file: str = ""

    def __init__(self, reason: str, hint: str = SKIP_HINT) -> None:
        super().__init__(reason)
        self.hint = hint

    def at(self, path: str, line: int | None, *, skips: bool = True) -> InputError:
        """The error a user sees; without `skips` nothing can be left out of what is read."""
        return InputError(f"{place(path, line)}: {self}.", self.hint if skips else self.hint.replace(_SKIPPED, "."))


def too_long() -> BadLine:
    """The verdict on a line or file beyond the longest that is read."""
    return BadLine(f"longer than {sized(files.MAX_LINE)}", "Put every document on its own line; split those beyond this.")


_INTO_UTF8 = f"Turn the file into UTF-8 (`iconv -f WINDOWS-1252 -t UTF-8`){_SKIPPED}"


def not_utf8(wrong: UnicodeDecodeError, before: str = "", hint: str = _INTO_UTF8) -> BadLine:
    """The verdict on a line that is not UTF-8; `before` says where in an entry of several lines."""
    return BadLine(f"{before}byte 0x{wrong.object[wrong.start]:02x} at column {wrong.start + 1} is not UTF-8", hint)


def text_line(line: bytes | None, hint: str) -> str:
    """The text of a line that is no entry of a corpus; `hint` says what such a line looks like.

    Raises:
        BadLine: It is not UTF-8, or so long that it was not read (None).
    """
    if line is None:
        raise BadLine("far too long", hint)
    try:
        return line.decode()
    except UnicodeDecodeError as wrong:
        raise not_utf8(wrong, hint=hint) from None


def identity(found: dict[str, Any], keys: tuple[str, ...] = ID_KEYS) -> str | None:
    """Takes the id out of an entry; None where it has none.

    Raises:
        BadLine: It is there, and cannot be an id.
    """
    key = next((key for key in keys if key in found), None)
    if key is None:
        return None
    value = found.pop(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadLine(f"{key!r} is {_shown(value)}, and an id is a string or a whole number below 2^64")
    if not value:
        raise BadLine(f"{key!r} is empty")
    return value


def text_of(found: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """Takes a text out of an entry: the first of `keys` that is there; null is an empty text, None that there is no key.

    Raises:
        BadLine: It is there, and not a string.
    """
    key = next((key for key in keys if key in found), None)
    if key is None:
        return None
    value = found.pop(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadLine(f"{key!r} is {_shown(value)} where a string should be")
    return value


def _names(found: dict[str, Any]) -> str:
    """The fields that are left of an entry, for a message."""
    return few([repr(name) for name in islice(found, _NAMED)], _NAMED, total=len(found)) or "its fields"


def _shown(value: Any) -> str:
    return clipped(orjson.dumps(value).decode(), _MANY)


def json_value(value: Any) -> Any:
    """A value of a typed source as JSON has it.

    Dates and times become ISO 8601, durations seconds, decimals their digits, NaN and infinities null, bytes text, records
    objects, and what is left (UUIDs, intervals) what `str` says.

    Raises:
        BadLine: Bytes that are no UTF-8.
    """
    if value is None or isinstance(value, str | int):
        return value
    return next((convert(value) for kind, convert in _CONVERTED if isinstance(value, kind)), str(value))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as wrong:
        raise BadLine(f"byte 0x{value[wrong.start]:02x} in a text is not UTF-8") from None


def _sequence(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return json_value(value._asdict())
    return [json_value(each) for each in value]


_CONVERTED: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (float, lambda value: value if math.isfinite(value) else None),
    (date | time, lambda value: value.isoformat()),  # a datetime is a date
    (timedelta, lambda value: value.total_seconds()),
    (bytes, _text),
    (dict, lambda value: {str(key): json_value(each) for key, each in value.items()}),
    (list | tuple, _sequence),
)


class Mapper:
    """Entries to documents, for one pass; remembers whether the entries have ids of their own.

    Args:
        fields: Which field is what, where a user said so: such a field has to be there.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        # A name that was given away is not free to mean what it usually does.
        self._ids, self._titles, self._texts = (
            tuple(key for key in keys if key not in fields.named()) for keys in (ID_KEYS, (TITLE_KEY,), TEXT_KEYS)
        )
        self._numbered: bool | None = None
        self._titled = self._mapped = False

    def document(self, found: dict[str, Any], line: int) -> Document:
        """The document that an entry means; what was not taken out of `found` becomes metadata.

        Raises:
            BadLine: It is none.
        """
        id_, title, text = self._id(found, line), self._title(found), self._text(found)
        if title is None and text is None:
            raise BadLine(
                f"neither a title nor a text among {_names(found)} (--id-field, --title-field and --text-field say which is which)"
            )
        nested = found.get("metadata")
        if isinstance(nested, dict):
            del found["metadata"]
            found = nested | found
        self._mapped, self._titled = True, self._titled or title is not None
        return Document(id_, text or "", title or "", found, line)

    def finish(self) -> None:
        """The pass is over.

        Raises:
            UsageError: A field was to be the title, and no entry had it. (One that lacks it has no title.)
        """
        if self._mapped and self._fields.title and not self._titled:
            raise UsageError(f"No entry has a {self._fields.title!r}, which is to be the title.", "Mend or drop --title-field.")

    def _id(self, found: dict[str, Any], line: int) -> str:
        if self._fields.id is not None:
            own = identity(found, (self._fields.id,))
            if own is None:
                raise BadLine(f"no {self._fields.id!r}, which is to be the id")
            return own
        own = identity(found, self._ids)
        if self._numbered is None:
            self._numbered = own is None
        elif self._numbered and own is not None:
            raise BadLine(f"the id {_shown(own)}, where the documents before have none and go by their line numbers")
        elif not self._numbered and own is None:
            raise BadLine(f"no id, where the documents before have one; it is called {', '.join(map(repr, ID_KEYS))}")
        return own or str(line)

    def _title(self, found: dict[str, Any]) -> str | None:
        return text_of(found, (self._fields.title,) if self._fields.title else self._titles)

    def _text(self, found: dict[str, Any]) -> str | None:
        if not self._fields.text:
            return text_of(found, self._texts)
        parts = [part for key in self._fields.text if (part := text_of(found, (key,))) is not None]
        if not parts:
            raise BadLine(f"no {' or '.join(map(repr, self._fields.text))}, which is to be the text")
        return "\n".join(part for part in parts if part)
