"""The fields in an index mapping that are not termweave's own: those of the user's `--mapping`, or of an application's index after `termweave enrich`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from termweave.catalog.columns import Column, columns, unlisted
from termweave.catalog.layout import ApplicationFields, DocumentLayout
from termweave.catalog.source_fields import TEXT_KEYS, TITLE_KEY, Fields
from termweave.dialect import dialect_of
from termweave.engine.client.connection import Engine, quote

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage


def with_fields(engine: Engine, index: str, lineage: Lineage) -> DocumentLayout:
    """Return an index's layout with the fields that the user's mapping or the application declares, read now, because a mapping may change later."""
    fields = fields_read(lineage)
    if fields is None and not lineage.fields:
        return lineage.layout
    mapped: dict[str, Column] = {}
    strict = True
    for stored in engine.of_indices(f"/{quote(index)}/_mapping", "mappings").values():
        strict = strict and not unlisted(stored["mappings"])
        top = (stored["mappings"].get("properties") or {}).keys()
        ours = top - set(lineage.fields) if fields is None else set(lineage.source["enriched"].split()) - {"id"}
        for name, column in columns(stored["mappings"], ours, dialect_of(engine.capabilities).unordered).items():
            first = mapped.setdefault(name, column)
            if (first, first.searched, first.doc_values) != (column, column.searched, column.doc_values):
                mapped[name] = replace(first, kind="mixed")
    if fields is not None:
        mapped.setdefault("id", Column(lineage.layout.id_field, "keyword"))
        fields = replace(fields, strict=strict)
    return replace(lineage.layout, application=fields, mapped=mapped)


def fields_read(lineage: Lineage) -> ApplicationFields | None:
    """Return the fields that `termweave enrich` reads title and text from; None: termweave built the index itself."""
    return read_by(named_fields(lineage) or Fields()) if "enriched" in lineage.source else None


def read_by(fields: Fields) -> ApplicationFields:
    """Return the fields that title and text are read from: those that the user named, else the usual names.

    As in `corpora.formats.fields.Mapper`, a field that was named for one purpose does not serve its usual one.
    """
    title, *texts = ("" if key in fields.named() else key for key in (TITLE_KEY, *TEXT_KEYS))
    return ApplicationFields(fields.title or title, fields.text or [*filter(None, texts)], joined=bool(fields.text))


def named_fields(lineage: Lineage) -> Fields | None:
    """Return the fields that the first `termweave enrich` of an index was told to read; None: the lineage names no fields."""
    return parsed_fields(lineage.source.get("fields", ""))


def parsed_fields(stored: str) -> Fields | None:
    """Parse the names of fields that a lineage stores as JSON; None: the text is empty."""
    if not stored:
        return None
    names = orjson.loads(stored)
    return Fields(names.get("id"), names.get("title"), tuple(names.get("text") or ()))
