"""The format of a lineage: older versions read what they can, and are told of what they cannot."""

import json
from pathlib import Path

import pytest

from termweave.catalog.layout import DocumentLayout
from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.errors import EngineError, UsageError

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL = ModelLineage("a-model", "0123456789abcdef")


def lineage(**values):
    created = "2026-11-23T12:00:00.000+00:00"
    return Lineage("docs", created, "0.2.0", {"name": "here"}, "0123", {"lexical": {}}, fields=[], **values)


def read(meta):
    return Lineage.from_meta({"termweave": json.loads(json.dumps(meta))}, "docs-1")


def test_an_index_with_nothing_new_is_stored_as_the_first_version_stores_it():
    stored = json.loads((FIXTURES / "0.1.0" / "learned.json").read_text(encoding="utf-8"))
    first = stored["stored"]["mappings"]["_meta"]["termweave"]
    meta = lineage(models={"weights": MODEL, "dense": MODEL}).as_meta()
    assert meta.keys() == first.keys()
    assert meta["schema"] == first["schema"] == 1


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (1, {}),
        (2, {"types": {"year": "long"}}),
        (2, {"models": {"dense": MODEL, "dense_query": MODEL}}),
        (3, {"types": {"price": "double"}, "notations": {"price": "decimal-comma"}}),
    ],
)
def test_what_an_earlier_version_would_not_understand_has_a_format_that_it_refuses(schema, values):
    meta = lineage(**values).as_meta()
    assert meta["schema"] == schema
    assert read(meta).as_meta() == json.loads(json.dumps(meta))
    with pytest.raises(EngineError, match="is damaged"):
        read({**meta, "notations": {"price": "roman"}})
    if schema == 1:
        del meta["schema"]  # none is the first
        assert read(meta) == lineage()


@pytest.mark.parametrize("schema", [4, "2", None])
def test_a_newer_format_is_not_called_damaged(schema):
    with pytest.raises(UsageError, match=r"built by termweave 0.2.0 in a format that this version cannot read") as caught:
        read({**lineage().as_meta(), "schema": schema, "something": "new"})
    assert "Install the version that built it" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "read", "shown"),
    [
        ('{"id": null, "title": null, "text": ["title"]}', ("title",), ("", "A")),  # it is not the title as well
        ('{"id": null, "title": "body", "text": []}', ("body", "text", "contents", "content"), ("B", "C")),
        ("{}", ("title", "text", "contents", "body", "content"), ("A", "B")),
    ],
)
def test_a_field_has_one_purpose(fields, read, shown):
    source = {"name": "", "fingerprint": "", "enriched": "id weights", "fields": fields}
    made = Lineage(name="docs", created="", termweave="", source=source, fingerprint="", signals={})
    layout = DocumentLayout((), application=made.application_fields)
    assert layout.text_fields == read
    found = layout.with_text({"title": "A", "body": "B", "content": "C"})
    assert (found["title"], found["text"]) == shown
