"""The fields of an application's index that `termweave enrich` added signals to: its mapping says what can be filtered, counted and sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave.catalog.layout import ApplicationFields, Column, DocumentLayout
from termweave.catalog.source_fields import TEXT_KEYS, TITLE_KEY, Fields
from termweave.engine.client.connection import Engine, quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from termweave.catalog.lineage import Lineage

#: Type of a field in a mapping -> the type by which filters convert values.
_KINDS = {
    **dict.fromkeys(("keyword", "constant_keyword", "wildcard", "ip", "version"), "keyword"),
    **dict.fromkeys(("byte", "short", "integer", "long", "unsigned_long"), "long"),
    **dict.fromkeys(("half_float", "float", "double", "scaled_float"), "double"),
    **dict.fromkeys(("date", "date_nanos"), "date"),
    "boolean": "boolean",
    **{kind: kind for kind in ("geo_point", "rank_feature")},
    **dict.fromkeys(("text", "match_only_text", "search_as_you_type"), "text"),
}


#: Values of `dynamic` with which a document may hold fields that the mapping does not get.
_NOT_ENTERED = frozenset({False, "false", "runtime"})


def with_fields(engine: Engine, index: str, made: Lineage) -> DocumentLayout:
    """The layout of a generation; for an enriched index with the fields of its application, which may have changed since."""
    if (fields := fields_read(made)) is None:
        return made.layout
    mapping = engine.of_indices(f"/{quote(index)}/_mapping", "mappings")[index]["mappings"]
    properties = mapping.get("properties") or {}
    ours = set(made.source["enriched"].split()) - {"id"}
    theirs = {name: field for name, field in properties.items() if name not in ours}
    columns = dict(_columns(theirs))
    aliases = {name: columns[path] for name, path in _aliases(properties) if path in columns}
    types = dict(_types(theirs))
    strict = mapping.get("dynamic", "true") not in _NOT_ENTERED
    return replace(made.layout, application=replace(fields, columns=columns | aliases, types=types, strict=strict))


def fields_read(made: Lineage) -> ApplicationFields | None:
    """The fields of title and text that `enrich` reads, without columns; None for an index that termweave built.

    The rule is that of `corpora.formats.fields.Mapper`: a field that was named for one purpose does not serve its usual one.
    """
    if "enriched" not in made.source:
        return None
    fields = named_fields(made) or Fields()
    title, *texts = ("" if key in fields.named() else key for key in (TITLE_KEY, *TEXT_KEYS))
    return ApplicationFields({}, fields.title or title, fields.text or [*filter(None, texts)], joined=bool(fields.text))


def named_fields(made: Lineage) -> Fields | None:
    """The fields that the first `enrich` was told to read; None if the lineage does not say."""
    if not (stored := made.source.get("fields")):
        return None
    named = orjson.loads(stored)
    return Fields(named.get("id"), named.get("title"), tuple(named.get("text") or ()))


def _columns(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Name and column of each field; a text with a keyword among its subfields is compared by that one. Nested objects have none."""
    for name, field in properties.items():
        path, kind = f"{prefix}{name}", _KINDS.get(field.get("type", ""))
        if kind == "text":
            keywords = {inner: each for inner, each in (field.get("fields") or {}).items() if each.get("type") == "keyword"}
            exact = next(iter(keywords), None)
            yield path, _column(f"{path}.{exact}", "keyword", keywords[exact]) if exact else Column(path, "text")
        elif kind:
            yield path, _column(path, kind, field)
        elif field.get("type", "object") == "object":
            yield from _columns(field.get("properties") or {}, f"{path}.")


def _types(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and type of each field and object; "" as the type of an object in which documents may hold anything."""
    for name, field in properties.items():
        anything = field.get("dynamic") in _NOT_ENTERED or field.get("enabled") in {False, "false"}
        yield f"{prefix}{name}", "" if anything else field.get("type", "object")
        yield from _types(field.get("properties") or {}, f"{prefix}{name}.")


def _column(path: str, kind: str, field: Mapping[str, Any]) -> Column:
    stored = field.get("doc_values", True) not in {False, "false"} and kind != "rank_feature"
    return Column(path, kind, doc_values=stored)


def _aliases(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name and path of each field that stands for another one."""
    for name, field in properties.items():
        if field.get("type") == "alias":
            yield f"{prefix}{name}", field["path"]
        yield from _aliases(field.get("properties") or {}, f"{prefix}{name}.")
