"""Lines of JSON as databases and search engines export them: MongoDB's extended JSON, hits (elasticdump), and requests of the `_bulk` API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.catalog.typed_fields import convert
from termweave.corpora.formats.fields import MAX_DEPTH, BadLine, nested_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: A line of a file with its entry, or the reason why it has none.
    Numbered = Iterator[tuple[int, dict[str, Any] | BadLine]]

#: What exports there are, beside lines that are documents.
HITS, BULK, EXTENDED = "hits", "bulk", "extended"
_ACTIONS = ("index", "create", "update", "delete")
#: What a line of an action says of its document.
_OF_ACTION = frozenset((
    "_index", "_id", "_type", "routing", "_routing", "version", "_version", "version_type", "_version_type", "pipeline", "require_alias", "parent",
    "require_data_stream", "retry_on_conflict", "_retry_on_conflict", "if_seq_no", "if_primary_term", "list_executed_pipelines", "dynamic_templates",
))  # fmt: skip


def export_of(entry: dict[str, Any]) -> str:
    """What a file is whose first line is this one: `HITS`, `BULK`, `EXTENDED`, or "" for lines that are documents."""
    if {"_id", "_source"} <= entry.keys() and isinstance(entry["_source"], dict):
        return HITS
    return BULK if _is_action(entry) else EXTENDED if plain(entry) != entry else ""


def _is_action(entry: dict[str, Any]) -> bool:
    """Whether a line says what is done with the document below it."""
    return len(entry) == 1 and all(
        name in _ACTIONS and isinstance(about, dict) and about.keys() <= _OF_ACTION for name, about in entry.items()
    )


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
        elif not isinstance(entry.get("_source"), dict):
            yield number, BadLine("no _source, though the first line has one: that of a hit")
        else:
            yield number, {**entry["_source"], "_id": entry.get("_id")}


def _results(read: Callable[[], Numbered]) -> Numbered:
    """The documents that an index has after the requests of a file. Those that a request changes or deletes are kept in memory."""
    touched = {identity for _, action, identity, _ in _requests(read()) if action in {"update", "delete"}}
    changed: dict[Any, tuple[int, dict[str, Any]]] = {}
    for number, action, identity, body in _requests(read()):
        line, before = changed.get(identity, (number, None))
        if isinstance(body, BadLine):
            yield number, body
        elif identity not in touched:
            yield number, body if identity is None else {**body, "_id": identity}
        elif action == "delete":
            changed.pop(identity, None)
        elif action != "update":
            changed[identity] = line, body
        elif before is None and not isinstance(body.get("upsert", body["doc"] if body.get("doc_as_upsert") else None), dict):
            yield number, BadLine(f"an update of {identity!r}, which no line before it holds")
        elif before is None:
            changed[identity] = line, body.get("upsert", body.get("doc"))
        else:
            changed[identity] = line, _merged(before, body["doc"])
    yield from ((line, {**body, "_id": identity}) for identity, (line, body) in changed.items())


def _requests(lines: Numbered) -> Iterator[tuple[int, str, Any, dict[str, Any] | BadLine]]:
    """The requests: line, action, id (None: the server would choose it), and what stands on the line below the action."""
    for number, entry in lines:
        if isinstance(entry, BadLine) or not _is_action(entry):
            yield (
                number,
                "",
                None,
                entry if isinstance(entry, BadLine) else BadLine("no action of the _bulk API where one should be"),
            )
            continue
        ((action, about),) = entry.items()
        identity, line, body = about.get("_id"), number, {}
        if action != "delete":
            line, body = next(lines, (number, BadLine("an action without a document below it")))
        if not isinstance(identity, str | int | None) or (identity is None and action in {"update", "delete"}):
            body = BadLine(f"{action} without an _id that is a text")
        elif not isinstance(body, BadLine) and nested_too_deep(body):
            body = BadLine(f"nested deeper than {MAX_DEPTH} levels")
        elif action == "update" and not isinstance(body, BadLine) and not isinstance(body.get("doc"), dict):
            body = BadLine("an update without a doc (only an index can run a script)")
        yield line, action, None if identity is None else str(identity), body


def _merged(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A document with a partial update, which merges objects."""
    both = {
        name: _merged(before[name], value)
        for name, value in change.items()
        if isinstance(value, dict) and isinstance(before.get(name), dict)
    }
    return {**before, **change, **both}


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
    if key in {"$oid", "$uuid", "$symbol", "$numberDecimal"}:
        return content
    if key == "$date":
        return content if isinstance(content, str) else convert("epoch-milliseconds", content)
    if key in {"$numberInt", "$numberLong", "$numberDouble"}:
        return convert("double" if key == "$numberDouble" else "long", content)
    return inner
