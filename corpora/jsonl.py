"""JSON lines: one object a line, plain or packed.

Which key is what (the first that is there counts; what is left over is metadata):

    id      ``_id``, ``id``, ``docid``, ``doc_id``; a whole number becomes its digits. A file whose first document has
            none is numbered by its lines, and then no other document may have one: the two would collide.
    title   ``title``; may be missing, null or empty.
    text    ``text``, ``contents``, ``body``, ``content``; may be null or empty, and missing where there is a title.

BEIR's own ``metadata`` object is merged into the metadata; a key beside it wins over the same key in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.corpora import files
from termweave.corpora.sources import Progress, Skipped, Skips
from termweave.errors import InputError
from termweave.records import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

ID_KEYS = ("_id", "id", "docid", "doc_id")
TEXT_KEYS = ("text", "contents", "body", "content")
TITLE_KEY = "title"

_SKIP_HINT = "Mend the line, or leave such lines out with --skip-bad."
_MANY = 40


class BadLine(ValueError):
    """Why one line cannot be read: a clause that goes behind "corpus.jsonl, line 7: "."""

    def __init__(self, reason: str, hint: str = _SKIP_HINT) -> None:
        super().__init__(reason)
        self.hint = hint

    def at(self, path: str, line: int) -> InputError:
        """The error a user sees."""
        return InputError(f"{path}, line {line}: {self}.", self.hint)


def parse(line: bytes | None) -> dict[str, Any]:
    """The object on a line.

    Raises:
        BadLine: There is none, and what is there instead.
    """
    if line is None:
        raise BadLine(f"longer than {files.MAX_LINE >> 20} MB", "Put every document on its own line; split those beyond this.")
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLine(_diagnosis(line, error)) from None
    if not isinstance(found, dict):
        kinds = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
        hint = "Put one object on each line: `jq -c '.[]'` turns an array into lines." if isinstance(found, list) else _SKIP_HINT
        raise BadLine(f"{kinds[type(found)]} where an object should be", hint)
    return found


def _diagnosis(line: bytes, error: orjson.JSONDecodeError) -> str:
    """What is wrong with a line that orjson refused, in words that help to find it."""
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        return f"byte 0x{line[wrong.start]:02x} at column {wrong.start + 1} is not UTF-8"
    if "\0" in text:
        return f"a NUL byte at column {text.index(chr(0)) + 1}"

    def not_json(literal: str) -> None:
        raise ValueError(literal)

    reason, column = error.msg, error.pos + 1
    try:
        json.loads(text, parse_constant=not_json)
        # The standard library reads what orjson refuses: half of a surrogate pair, and numbers beyond a double.
        if "surrogate" in reason:
            return f"half of a surrogate pair (\\ud800 to \\udfff) at column {column} is no character"
    except json.JSONDecodeError as wrong:
        reason, column = f"{wrong.msg[:1].lower()}{wrong.msg[1:]}", wrong.pos + 1
    except ValueError as literal:
        reason = f"{literal} is not a JSON number"
    except RecursionError:
        reason = "nested too deeply"
    return f"broken JSON at column {column}: {reason}"


def identity(found: dict[str, Any], keys: tuple[str, ...] = ID_KEYS) -> str | None:
    """Takes the id out of an object; None where it has none.

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
    """Takes a text out of an object: the first of `keys` that is there; null is an empty text, None that there is no key.

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


def _shown(value: Any) -> str:
    shown = orjson.dumps(value).decode()
    return shown if len(shown) <= _MANY else f"{shown[:_MANY]}..."


@dataclass(slots=True)
class _Mapper:
    """Objects to documents; remembers whether this file's documents have ids of their own."""

    numbered: bool | None = None

    def document(self, found: dict[str, Any], line: int) -> Document:
        id_ = identity(found)
        title, text = text_of(found, (TITLE_KEY,)), text_of(found, TEXT_KEYS)
        if title is None and text is None:
            raise BadLine(f"neither a title nor a text; a text is called {', '.join(map(repr, TEXT_KEYS))}")
        if self.numbered is None:
            self.numbered = id_ is None
        elif self.numbered and id_ is not None:
            raise BadLine(f"the id {_shown(id_)}, where the documents before have none and go by their line numbers")
        elif not self.numbered and id_ is None:
            raise BadLine(f"no id, where the documents before have one; it is called {', '.join(map(repr, ID_KEYS))}")
        nested = found.get("metadata")
        if isinstance(nested, dict):
            del found["metadata"]
            found = nested | found
        return Document(id_ or str(line), text or "", title or "", found, line)


class JsonLines:
    """A file of documents as JSON lines: a `Source`, and the reader that recognises it."""

    #: Goes into fingerprints: raise it when the same bytes come to be read as other documents.
    KIND: ClassVar[str] = "jsonl/1"

    def __init__(self, path: Path, *, name: str | None = None, skip_bad: bool = False) -> None:
        self._path = path
        self._name = name
        self._skip_bad = skip_bad
        self._total: int | None = None
        self.skipped = Skips()

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """A file that begins with a JSON object, or that would if it were UTF-8; an empty one is a corpus without documents."""
        path = Path(spec)
        if not path.is_file():
            return False
        start = files.head(path)
        # "[" and UTF-16 are recognised to be refused by name when they are read, not as something unknown.
        return start[:1] in {b"{", b"[", b""} or files.is_utf16(start)

    @classmethod
    def open(cls, spec: str, *, name: str | None = None, skip_bad: bool = False) -> JsonLines:
        """The file as a source."""
        return cls(Path(spec), name=name, skip_bad=skip_bad)

    @property
    def name(self) -> str:
        """The file's name."""
        return self._name or self._path.name

    @property
    def fingerprint(self) -> str:
        """Over the file's bytes as they lie."""
        return files.fingerprint(self._path, self.KIND)

    @property
    def total(self) -> int | None:
        """Documents that the last whole pass gave; None before one."""
        return self._total

    @property
    def size(self) -> int:
        """Bytes of the file as it lies."""
        return self._path.stat().st_size

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """The documents in the file's order, one in memory at a time.

        Raises:
            InputError: A line is no document, by file and line; with `skip_bad` it is left out and stands in `skipped`.
        """
        self.skipped.clear()
        mapper, count, shown = _Mapper(), 0, self._name or str(self._path)
        for number, line in files.lines(self._path, progress):
            try:
                document = mapper.document(parse(line), number)
            except BadLine as bad:
                if not self._skip_bad:
                    raise bad.at(shown, number) from None
                self.skipped.add(Skipped(number, str(bad), shown))
                continue
            count += 1
            yield document
        self._total = count
