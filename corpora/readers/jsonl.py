"""Read JSON lines: one object per line. `termweave.corpora.formats.fields` decides which key is what.

Lines may be what databases and search engines export: MongoDB's extended JSON, hits (elasticdump), and requests of the `_bulk` API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.catalog.source_fields import Fields, take
from termweave.catalog.typed_fields import convert
from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines as files
from termweave.corpora.formats.fields import MAX_DEPTH, BadLine, Mapper, attempted, described, nested_too_deep, not_utf8, too_long

if TYPE_CHECKING:
    from termweave.corpora.sources import Progress
    from termweave.records import Document

    #: A line of a file with its entry, or the reason why it has none.
    Numbered = Iterator[tuple[int, dict[str, Any] | BadLine]]

#: What exports there are, beside lines that are documents.
HITS, BULK, EXTENDED = "hits of an index", "requests of the _bulk API", "extended JSON of MongoDB"
#: Keys of extended JSON whose values are texts, and key -> the type or notation of the others.
_TEXTS = ("$oid", "$uuid", "$symbol", "$numberDecimal")
_CONVERTED = {"$date": "epoch-milliseconds", "$numberInt": "long", "$numberLong": "long", "$numberDouble": "double"}
#: A line that says what is done with the document below it: one of these, with an object of these entries, or of some of them.
_ACTIONS = ("index", "create", "update", "delete")
_OF_ACTION = re.compile(r"_.*|routing|version.*|parent|pipeline|re(quire|try)_.*|if_.*|list_executed_pipelines|dynamic_templates")


def parse(line: bytes | None) -> dict[str, Any]:
    """Parse the object on a line.

    Raises:
        BadLine: The line is not a JSON object; the reason says what it is.
    """
    if line is None:
        raise too_long()
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(line, error) from None
    if not isinstance(entry, dict):
        kinds = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
        advice = " (`jq -c '.[]'` puts each object on a line of its own)" if isinstance(entry, list) else ""
        raise BadLine(f"{kinds[type(entry)]} where an object should be{advice}")
    return entry


def _diagnosis(line: bytes, error: orjson.JSONDecodeError) -> BadLine:
    """Return the reason why a line that orjson cannot parse is no JSON."""
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        return not_utf8(wrong)
    if "\0" in text:
        return BadLine(f"a NUL byte at column {text.index(chr(0)) + 1}")
    if text.replace(" ", "") in {"{", "[", "[{"} or text.rstrip().endswith(("{", ",")):
        is_array = text.lstrip().startswith("[")
        values, kind = ("jq -c '.[]'", "array") if is_array else ("jq -c .", "object")
        return BadLine(f"broken JSON: an {kind} over several lines (`{values}` puts each object on a line of its own)")
    literal = re.match("NaN|Infinity", text[error.pos :])
    reason = f"{literal[0]} is not a JSON number" if literal else error.msg
    return BadLine(f"broken JSON at column {error.pos + 1}: {reason}")


def export_of(entry: dict[str, Any]) -> str:
    """Return the kind of export that a first line shows: `HITS`, `BULK`, `EXTENDED`, or "" for lines that are documents."""
    if {"_id", "_source"} <= entry.keys() and isinstance(entry["_source"], dict):
        return HITS
    return BULK if _is_action(entry) else EXTENDED if plain(entry) != entry else ""


def _is_action(entry: dict[str, Any]) -> bool:
    ((name, about),) = entry.items() if len(entry) == 1 else [("", None)]
    return name in _ACTIONS and isinstance(about, dict) and all(map(_OF_ACTION.fullmatch, about))


def exported(export: str, read: Callable[[], Numbered]) -> Numbered:
    """Yield the documents of an export as entries with line numbers.

    Args:
        export: The kind of export, as `export_of` returns it.
        read: Function that reads all lines of the file from its beginning.
    """
    for number, entry in _results(read) if export == BULK else read():
        if export == HITS and not isinstance(entry, BadLine):
            source, absent = entry.get("_source"), BadLine("no _source, though the first line has one, as hits of an index do")
            yield number, {**source, "_id": entry.get("_id")} if isinstance(source, dict) else absent
        else:
            yield number, entry


def _results(read: Callable[[], Numbered]) -> Numbered:
    """Yield the documents that an index would have after the `_bulk` requests of a file; documents that a request changes or deletes stay in memory."""
    seen, touched = set[str](), set[str | None]()
    for _, action, identity, _ in _requests(read()):
        if identity is not None:
            touched |= {identity} if action in {"update", "delete"} or identity in seen else set()
            seen.add(identity)
    changed: dict[str | None, tuple[int, dict[str, Any]]] = {}
    for number, action, identity, body in _requests(read()):
        if isinstance(body, BadLine):
            yield number, body
        elif identity not in touched:
            yield number, body if identity is None else {**body, "_id": identity}
        elif action == "delete":
            changed.pop(identity, None)
        elif action == "create" and identity in changed:
            continue  # a server refuses it
        else:
            line, before = changed.get(identity, (number, None))
            new = body.get("upsert", body["doc"] if body.get("doc_as_upsert") else None) if action == "update" else body
            if action == "update" and before is not None:
                new = _merged(before, body["doc"])
            if isinstance(new, dict):
                changed[identity] = line, new
            else:
                yield number, BadLine(f"an update of {identity!r}, which no line before it holds")
    yield from ((line, {**body, "_id": identity}) for identity, (line, body) in changed.items())


def _requests(lines: Numbered) -> Iterator[tuple[int, str, str | None, dict[str, Any] | BadLine]]:
    """Yield `_bulk` requests: line, action, id (None: the server would choose one), and the object below the action, or why the request is none."""
    for number, entry in lines:
        line, action, about, body = number, "", dict[str, Any](), entry
        if not isinstance(entry, BadLine):
            ((action, about),) = entry.items() if _is_action(entry) else [("", {})]
            body = {} if action == "delete" else BadLine("no action of the _bulk API where one should be")
        if action not in {"", "delete"}:
            line, body = next(lines, (number, BadLine("an action without a document below it")))
        identity = about.get("_id")
        if not isinstance(identity, str | int | None) or (identity is None and action in {"update", "delete"}):
            body = BadLine(f"{action} without an _id that is a text")
        elif isinstance(body, dict) and action == "update" and not isinstance(body.get("doc"), dict):
            body = BadLine("an update without a doc (a script cannot be run)")
        elif nested_too_deep(body):
            body = BadLine(f"nested deeper than {MAX_DEPTH} levels")
        yield line, action, None if identity is None else str(identity), body


def _merged(before: Any, change: Any) -> Any:
    """Apply a partial update to a value: objects are merged, other values are replaced."""
    if not (isinstance(before, dict) and isinstance(change, dict)):
        return change
    return {**before, **{name: _merged(before.get(name), value) for name, value in change.items()}}


def plain(value: Any) -> Any:
    """Turn MongoDB's extended JSON into JSON: ``{"$oid": "64c9"}`` is a text, ``{"$numberLong": "9"}`` a number, ``{"$date": ...}`` ISO 8601."""
    return value if nested_too_deep(value) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _plain(each) for key, each in value.items()}
    key, content = next(iter(inner.items())) if len(inner) == 1 else ("", None)
    if key in _TEXTS or (key == "$date" and isinstance(content, str)):
        return content
    return convert(_CONVERTED[key], content) if key in _CONVERTED else inner


class JsonLines(FileSource):
    """A file of documents as JSON lines: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "JSON lines"
    MAPPED: ClassVar[bool] = True
    KIND: ClassVar[str] = "jsonl/1"

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a file begins with a JSON object. An empty file is a corpus without documents."""
        path = Path(spec)
        if not path.is_file():
            return False
        start = files.head(path)
        # Arrays and UTF-16 files are recognised, too: reading them ends with an error that names the problem.
        return start[:1] in {b"{", b"[", b""} or files.is_utf16(start)

    @property
    def kind(self) -> str:
        """The part of the fingerprint that tells how the bytes are read."""
        return f"{super().kind} {self._export}" if self._export else super().kind

    @property
    def remarks(self) -> list[str]:
        """A sentence about which fields of the first document are read as what."""
        fields = self._fields
        _, entry = next(exported(self._export, lambda: islice(self._parsed(), 2)), (0, BadLine("")))
        if isinstance(entry, BadLine):  # reading the documents says what is wrong
            return []
        names = [*entry, *(name for name in fields.named() if "." in name and take(dict(entry), name) is not None)]
        export = f"{self._export}; " if self._export else ""
        remark = f"{self.shown}: {export}on its first {self.ENTRY}, {described(names, fields, self.ENTRY)}."
        lacks = (fields.id is not None and fields.id not in names) or (bool(fields.text) and not set(fields.text) & set(names))
        return [] if lacks else [remark]  # it cannot be read

    @cached_property
    def _export(self) -> str:
        """The kind of export that the first line shows; "" for lines that are documents."""
        entry = next((entry for _, entry in self._parsed(whole=False)), None)
        return export_of(entry) if isinstance(entry, dict) else ""

    @cached_property
    def _fields(self) -> Fields:
        """The fields that the user named, by their names in converted documents: ``_id`` for ``_id.$oid``, ``title`` for ``_source.title`` of a hit."""
        wrapped = r"\.\$(oid|uuid|date|number\w+)$" + (r"|^_source\." if self._export == HITS else "")
        fields = self.reading.fields
        id_, title, *text = (name and re.sub(wrapped, "", name) for name in (fields.id, fields.title, *fields.text))
        return Fields(id_, title, tuple(filter(None, text)))

    def _parsed(self, progress: Progress | None = None, *, whole: bool = True) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
        """Yield number and object of each line that is not blank, or why it has no object; unless `whole`, extended JSON is not converted."""
        for number, line in files.lines(self.path, progress):
            try:
                entry = parse(line)
            except BadLine as bad:
                yield number, bad
            else:
                yield number, plain(entry) if whole and line and b'"$' in line else entry

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """Read the lines that are not blank."""
        mapper = Mapper(self._fields)
        for number, entry in exported(self._export, lambda: self._parsed(progress)):
            yield number, entry if isinstance(entry, BadLine) else attempted(mapper.document, entry, number)
        mapper.finish()
