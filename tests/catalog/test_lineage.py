"""The format of a lineage: older versions read what they can, and are told of what they cannot."""

import json
from pathlib import Path

import pytest

from termweave.catalog.lineage import Lineage, ModelLineage, known_names
from termweave.errors import EngineError, UsageError

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL = ModelLineage("a-model", "0123456789abcdef")


def made(**values):
    return Lineage(
        "docs", "2026-11-23T12:00:00.000+00:00", "0.2.0", {"name": "here"}, "0123", {"lexical": {}}, fields=[], **values
    )


def read(meta):
    return Lineage.from_meta({"termweave": json.loads(json.dumps(meta))}, "docs-1")


def test_an_index_with_nothing_new_is_stored_as_the_first_version_stores_it():
    kept = json.loads((FIXTURES / "0.1.0" / "learned.json").read_text(encoding="utf-8"))
    first = kept["stored"]["mappings"]["_meta"]["termweave"]
    meta = made(models={"weights": MODEL, "dense": MODEL}).as_meta()
    assert meta.keys() == first.keys()
    assert meta["schema"] == first["schema"] == 1


@pytest.mark.parametrize("values", [{"types": {"year": "long"}}, {"models": {"dense": MODEL, "dense_query": MODEL}}])
def test_what_the_first_version_would_not_understand_has_a_format_that_it_refuses(values):
    meta = made(**values).as_meta()
    assert meta["schema"] == 2
    assert read(meta) == made(**values)


def test_notations_have_a_format_of_their_own():
    meta = made(types={"price": "double"}, notations={"price": "decimal-comma"}).as_meta()
    assert meta["schema"] == 3
    assert read(meta).layout.forms == {"price": "decimal-comma"}
    with pytest.raises(EngineError, match="is damaged"):
        read({**meta, "notations": {"price": "roman"}})


def test_a_lineage_without_a_format_is_of_the_first():
    meta = made().as_meta()
    del meta["schema"]
    assert read(meta) == made()


@pytest.mark.parametrize("schema", [4, "2", None])
def test_a_newer_format_is_not_called_damaged(schema):
    with pytest.raises(UsageError, match=r"built by termweave 0.2.0 in a format that this version cannot read") as caught:
        read({**made().as_meta(), "schema": schema, "something": "new"})
    assert "Install the version that built it" in caught.value.hint


@pytest.mark.engine
def test_a_hint_names_no_alias_that_only_a_builder_writes_to(opensearch_engine, name):
    """A build that its gate refused keeps that alias."""
    written = [f"0-{name}", f"0-{name}-20260101000000-0123abcd.write-7"]  # they begin the list, which has twenty names
    opensearch_engine.request("PUT", f"/{name}-x", body={"aliases": {alias: {} for alias in written}})
    named = known_names(opensearch_engine)
    assert (f"0-{name}" in named, ".write-" in named) == (True, False)
