"""Turn entries with named fields (JSON objects, rows of a table) into documents, and check their values.

Unless the user names fields, the first of these names that an entry has is used. All other fields are metadata.

    id      ``_id``, ``id``, ``docid``, ``doc_id``; a whole number becomes its digits. If the first entry has no id, line numbers
            are the ids, and then no other entry may have an id: it could be equal to a line number.
    title   ``title``; may be missing, null or empty.
    text    ``text``, ``contents``, ``body``, ``content``; may be null or empty, and may be missing if there is a title.

BEIR's ``metadata`` object is merged into the metadata; a field outside this object replaces a field of the same name in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, time, timedelta
from itertools import islice
from typing import Any

import orjson

from termweave.catalog.source_fields import ID_KEYS, TEXT_KEYS, TITLE_KEY, Fields, take
from termweave.corpora.formats import lines as files
from termweave.corpora.sources import LINE, place
from termweave.errors import InputError, UsageError
from termweave.records import Document
from termweave.support.messages import clipped, few, sized

_SKIPPED = ", or skip such entries with --skip-bad."
SKIP_HINT = f"Correct the entry{_SKIPPED}"
#: Number of characters of a value, and of fields of an entry, that a message shows.
_MANY, _NAMED = 40, 12
#: Characters of an id: a server takes 32,766 bytes as a keyword.
LONGEST_ID = 8_000
#: Allowed nesting of objects and arrays in metadata. orjson writes 254 levels, of which some are around the metadata.
MAX_DEPTH = 100


class BadLine(ValueError):
    """The reason why an entry cannot be read: a clause that follows "corpus.jsonl, line 7: " in a message.

    Attributes:
        file: Name of the file in messages, for a source of several files; "" for the source itself.
        hint: Advice to the user.
        line: Line of the problem, in a file that is one entry as a whole; None: no line is known.
    """

    file: str = ""

    def __init__(self, reason: str, hint: str = SKIP_HINT, line: int | None = None) -> None:
        super().__init__(reason)
        self.hint, self.line = hint, line

    def at(self, path: str, line: int | None, *, skips: bool = True, entry: str = LINE) -> InputError:
        """Make the error that gives the place and this reason. Without `skips` the hint does not mention --skip-bad; `entry` is "line" or "item"."""
        return InputError(f"{place(path, line, entry)}: {self}.", self.hint if skips else self.hint.replace(_SKIPPED, "."))


def attempted(make: Callable[..., Document], *arguments: Any) -> Document | BadLine:
    """Return the document that the function `make` makes of an entry, or the reason why the entry is no document."""
    try:
        return make(*arguments)
    except BadLine as bad:
        return bad


def too_long() -> BadLine:
    """Make the reason why a line or file that is too long is not read."""
    return BadLine(f"longer than {sized(files.longest_line())}", "Put every document on its own line, and split long ones.")


_INTO_UTF8 = f"Convert the file to UTF-8 (`iconv -f WINDOWS-1252 -t UTF-8`){_SKIPPED}"


def not_utf8(wrong: UnicodeDecodeError, before: str = "", hint: str = _INTO_UTF8) -> BadLine:
    """Make the reason why a line that is not UTF-8 is not read; `before` names the line in an entry of several lines."""
    return BadLine(f"{before}byte 0x{wrong.object[wrong.start]:02x} at column {wrong.start + 1} is not UTF-8", hint)


def text_line(line: bytes | None, hint: str) -> str:
    """Decode a line of a file of queries or judgements; `hint` shows what such a line looks like.

    Raises:
        BadLine: The line is not UTF-8, or is None because it was too long.
    """
    if line is None:
        raise BadLine("far too long", hint)
    try:
        return line.decode()
    except UnicodeDecodeError as wrong:
        raise not_utf8(wrong, hint=hint) from None


def identity(entry: dict[str, Any], keys: Sequence[str] = ID_KEYS) -> str | None:
    """Remove the id from an entry and return the id; None: the entry has no id.

    Raises:
        BadLine: The value cannot be an id.
    """
    key, value = _taken(entry, keys)
    if not key:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadLine(f"{key!r} is {_shortened(value)}, and an id is a string or a whole number below 2^64")
    if not value:
        raise BadLine(f"{key!r} is empty")
    return checked_id(value)


def _taken(entry: dict[str, Any], keys: Sequence[str]) -> tuple[str, Any]:
    """Remove the first of `keys` that an entry has, perhaps in nested objects; return key and value, or "" and None if the entry has none."""
    for key in keys:
        if key in entry:
            return key, entry.pop(key)
        if "." in key and (value := take(entry, key)) is not None:
            return key, value
    return "", None


def checked_id(text: str) -> str:
    """Return an id after checking its length.

    Raises:
        BadLine: The id has more than `LONGEST_ID` characters.
    """
    if len(text) > LONGEST_ID:
        raise BadLine(f"the id {clipped(text, _MANY)!r} has {len(text):,} characters, and an id has at most {LONGEST_ID:,}")
    return text


def text_of(entry: dict[str, Any], keys: Sequence[str]) -> str | None:
    """Remove the text under the first of `keys` that an entry has, and return it; "" for null; None: the entry has none of these keys.

    Raises:
        BadLine: The value is not a string.
    """
    key, value = _taken(entry, keys)
    if not isinstance(value, str | None):
        raise BadLine(f"{key!r} is {_shortened(value)} where a string should be")
    return (value or "") if key else None


def _names(entry: dict[str, Any]) -> str:
    """List the names of an entry's fields for a message."""
    return few([repr(name) for name in islice(entry, _NAMED)], _NAMED, total=len(entry)) or "its fields"


def _shortened(value: Any) -> str:
    """Shorten a value for a message."""
    if nested_too_deep(value):
        return "a value nested too deep"
    return clipped(orjson.dumps(value).decode(), _MANY)


def nested_too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether objects and arrays in a value are nested deeper than `levels` levels."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(nested_too_deep(each, levels - 1) for each in parts if isinstance(each, dict | list))


def json_value(value: Any) -> Any:
    """Convert a value of a typed source to a JSON value.

    Dates and times become ISO 8601, durations seconds, decimals their digits, NaN, infinities and pandas' NA and NaT null, bytes text,
    records objects, NumPy's numbers and arrays Python's, and all others (UUIDs, intervals) the result of `str`.

    Raises:
        BadLine: Bytes are not UTF-8, or an object has no text of its own (`str` would give its address in memory).
    """
    if value is None or isinstance(value, str | int):
        return value
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    for kind, convert in _CONVERTED:
        if isinstance(value, kind):
            return convert(value)
    if not any("__str__" in vars(kind) for kind in type(value).__mro__[:-1]):
        raise BadLine(f"a value of the type {type(value).__name__} has no text")
    return str(value)


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
    (Mapping, lambda value: {str(key): json_value(each) for key, each in value.items()}),
    (list | tuple, _sequence),
    (set | frozenset, lambda value: _sequence(sorted(value, key=str))),
)


def described(names: Collection[str], fields: Fields, entry: str = LINE) -> str:
    """Say which of an entry's fields are read as what: "id = 'sku'; text = 'body'; metadata = 'year'".

    Args:
        names: Names of the fields of an entry.
        fields: Fields that the user named.
        entry: What messages call an entry of the source.
    """
    free = [name for name in names if name not in fields.named()]

    def usual(keys: tuple[str, ...]) -> str | None:
        return next((key for key in keys if key in free), None)

    id_, title = fields.id or usual(ID_KEYS), fields.title or usual((TITLE_KEY,))
    texts = fields.text or tuple(filter(None, [usual(TEXT_KEYS)]))
    other = [repr(name) for name in names if name not in {id_, title, *texts}]
    parts = [
        f"id = {id_!r}" if id_ else f"ids are the numbers of the {entry}s",
        f"title = {title!r}" if title else "",
        f"text = {' + '.join(map(repr, texts))}" if texts else "",
        f"metadata = {few(other, _NAMED, total=len(other))}" if other else "",
    ]
    return "; ".join(filter(None, parts))


class Mapper:
    """Turns the entries of a source into documents, in one pass, and remembers whether entries have ids of their own.

    Args:
        fields: Fields that the user named; entries must have them.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        # A field that the user named for one purpose is not used for its usual purpose.
        usual = [[key for key in keys if key not in fields.named()] for keys in (ID_KEYS, (TITLE_KEY,), TEXT_KEYS)]
        self._ids, self._titles, self._texts = usual[0], [fields.title] if fields.title else usual[1], usual[2]
        self._numbered: bool | None = None
        self._titled = self._mapped = False

    def document(self, entry: dict[str, Any], line: int) -> Document:
        """Turn an entry into a document. Fields that are not id, title or text become metadata.

        Raises:
            BadLine: The entry is not a document.
        """
        id_, title, text = self._id(entry, line), text_of(entry, self._titles), self._text(entry)
        if title is None and text is None:
            options = "--title-field and --text-field name such fields"
            raise BadLine(f"neither a title nor a text among {_names(entry)} ({options})")
        nested = entry.get("metadata")
        if isinstance(nested, dict):
            del entry["metadata"]
            entry = nested | entry
        if nested_too_deep(entry):
            raise BadLine(f"metadata nested deeper than {MAX_DEPTH} levels")
        self._mapped, self._titled = True, self._titled or title is not None
        return Document(id_, text or "", title or "", entry, line)

    def finish(self) -> None:
        """Check, after the last entry, that at least one entry had the field that the user named for the title.

        Raises:
            UsageError: No entry has the field that the user named for the title. (Single entries may lack it.)
        """
        if self._mapped and self._fields.title and not self._titled:
            raise UsageError(f"No entry has the field {self._fields.title!r} of --title-field.", "Correct --title-field.")

    def _id(self, entry: dict[str, Any], line: int) -> str:
        id_ = identity(entry, (self._fields.id,) if self._fields.id is not None else self._ids)
        if self._fields.id is not None:
            if id_ is None:
                hint = f"Correct --id-field{_SKIPPED}"
                raise BadLine(f"no {self._fields.id!r}, which --id-field names, among {_names(entry)}", hint)
            return id_
        if self._numbered is None:
            self._numbered = id_ is None
        elif self._numbered and id_ is not None:
            raise BadLine(f"the id {_shortened(id_)}, though earlier documents have no id and are numbered")
        elif not self._numbered and id_ is None:
            raise BadLine(f"no id, though earlier documents have one; an id is one of the fields {', '.join(map(repr, ID_KEYS))}")
        return id_ or str(line)

    def _text(self, entry: dict[str, Any]) -> str | None:
        if not self._fields.text:
            return text_of(entry, self._texts)
        parts = [part for key in self._fields.text if (part := text_of(entry, (key,))) is not None]
        if not parts:
            message = f"no {' or '.join(map(repr, self._fields.text))}, which --text-field names, among {_names(entry)}"
            raise BadLine(message, f"Correct --text-field{_SKIPPED}")
        return "\n".join(part for part in parts if part)
