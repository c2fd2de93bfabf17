"""Lines of JSON as databases and search engines export them: MongoDB's extended JSON, hits (elasticdump), and requests of the `_bulk` API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from termweave.catalog.typed_fields import convert
from termweave.corpora.formats.fields import MAX_DEPTH, BadLine, nested_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def export_of(entry: dict[str, Any]) -> str:
    """What a file is whose first line is this one: `HITS`, `BULK`, `EXTENDED`, or "" for lines that are documents."""
    if {"_id", "_source"} <= entry.keys() and isinstance(entry["_source"], dict):
        return HITS
    return BULK if _is_action(entry) else EXTENDED if plain(entry) != entry else ""


def _is_action(entry: dict[str, Any]) -> bool:
    ((name, about),) = entry.items() if len(entry) == 1 else [("", None)]
    return name in _ACTIONS and isinstance(about, dict) and all(map(_OF_ACTION.fullmatch, about))


def documents(export: str, read: Callable[[], Numbered]) -> Numbered:
    """The documents of an export.

    Args:
        export: As `export_of`.
        read: Reads all lines of the file from its beginning.
    """
    if export == BULK:
        yield from _results(read)
        return
    for number, entry in read():
        if export != HITS or isinstance(entry, BadLine):
            yield number, entry
        else:
            source, absent = entry.get("_source"), BadLine("no _source, though the first line has one: that of a hit")
            yield number, {**source, "_id": entry.get("_id")} if isinstance(source, dict) else absent


def _results(read: Callable[[], Numbered]) -> Numbered:
    """The documents that an index has after the requests of a file. Those that a request changes or deletes are kept in memory."""
    touched = {identity for _, action, identity, _ in _requests(read()) if action in {"update", "delete"}}
    changed: dict[str | None, tuple[int, dict[str, Any]]] = {}
    for number, action, identity, body in _requests(read()):
        if isinstance(body, BadLine):
            yield number, body
        elif identity not in touched:
            yield number, body if identity is None else {**body, "_id": identity}
        elif action == "delete":
            changed.pop(identity, None)
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
    """The requests: line, action, id (None: the server would choose it), and what stands on the line below the action."""
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
            body = BadLine("an update without a doc: only an index can run a script")
        elif nested_too_deep(body):
            body = BadLine(f"nested deeper than {MAX_DEPTH} levels")
        yield line, action, None if identity is None else str(identity), body


def _merged(before: Any, change: Any) -> Any:
    """A value after a partial update, which merges objects."""
    if not (isinstance(before, dict) and isinstance(change, dict)):
        return change
    return {**before, **{name: _merged(before.get(name), value) for name, value in change.items()}}


def plain(value: Any) -> Any:
    """A value of MongoDB's extended JSON as JSON: ``{"$oid": "64c9"}`` is a text, ``{"$numberLong": "9"}`` a number, ``{"$date": ...}`` ISO 8601."""
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
