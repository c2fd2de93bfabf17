"""Typed metadata in a real index: filters, facets, order, updates and verification."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, update
from termweave.indexer.ledger import storage
from termweave.indexer.verification import verify
from termweave.search.catalog import lineage

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "search.1.json"
LEXICAL = BuildOptions(signals=("lexical",))
DOCUMENTS = [
    {
        "id": f"d{number}",
        "text": "json " * (number + 1) + "river",
        "year": 2015 + number,
        "price": f"{number}.5",
        "day": f"2024-0{number + 1}-15",
        "kind": "ab"[number % 2],
        "pages": number or "unknown",
    }
    for number in range(6)
]


@pytest.fixture
def index(opensearch_engine, name):
    tw.index(DOCUMENTS, name, connection=tw.connect(opensearch_engine.url), signals=("lexical",))
    return tw.connect(opensearch_engine.url).index(name)


def test_filters_facets_and_order(index, capsys):
    def ids(**options):
        return [hit.id for hit in index.search("json", **options)]

    plain = {hit.id: hit.score for hit in index.search("json")}
    assert sorted(ids(where="year>=2018 AND price<5")) == ["d3", "d4"]
    assert sorted(ids(where=["day>2024-03", "NOT kind=b"])) == ["d4"]
    assert sorted(ids(where="pages=unknown OR year=2016")) == ["d0", "d1"]
    assert ids(sort="year:desc") == ["d5", "d4", "d3", "d2", "d1", "d0"]
    assert ids(sort="day", k=2, start=1) == ["d1", "d2"]
    answer = index.answer("json", where="year>2015", facets=["kind", "day"], sort="year")
    assert [(each.value, each.count) for each in answer.facets["kind"]] == [("b", 3), ("a", 2)]
    assert answer.facets["day"][0].value == "2024-02-15"
    assert {hit.id: hit.score for hit in answer.hits}.items() <= plain.items()  # neither changes a score
    with pytest.raises(UsageError, match="no field 'nope' that can be counted or sorted"):
        ids(sort="nope")
    command = [
        "search",
        index.name,
        "json",
        "--url",
        index.engine.url,
        "--filter",
        "year>2015",
        "--filter",
        "kind=a",
        "--facet",
        "kind",
    ]
    assert run([*command, "--json"]) == 0
    answered = json.loads(capsys.readouterr().out)
    jsonschema.validate(answered, json.loads(SCHEMA.read_text()))
    assert answered["facets"] == {"kind": [{"value": "a", "count": 2}]}
    assert run(command) == 0
    assert "kind: a 2" in capsys.readouterr().out


def test_a_filter_that_leaves_nothing_is_named(index):
    def remarks(*where):
        return index.answer("json", where=where).remarks

    assert remarks("year>2015", "year>2030") == ("No document passes the filter year>2030.",)
    assert remarks("kind=a", "year=2016") == (
        "No document passes all filters together; documents that pass each one alone: kind=a: 3; year=2016: 1.",
    )
    assert index.answer("nothing", where="kind=a").remarks == ("3 documents pass the filter, and the query finds none of them.",)


def test_an_update_keeps_the_types_and_verification_compares_them(index, opensearch_engine, tmp_path):
    path = tmp_path / "more.jsonl"
    path.write_text(json.dumps({"id": "d6", "text": "json", "year": "soon", "price": 1, "new": 1}))
    done = update(opensearch_engine, corpora.open_source(path), index.name, LEXICAL)
    assert any("'year' (1, not whole numbers)" in note for note in done.notes)
    assert index.lineage.types == lineage.read(opensearch_engine, index.generation).types
    assert [hit.id for hit in index.search("json", where="year=soon")] == ["d6"]
    with storage.open_(opensearch_engine, index.generation) as ledger:
        assert verify(opensearch_engine, index.generation, ledger, deep=1.0).ok
        body = {"doc": {"typed": {"year": 1900}}}
        opensearch_engine.request("POST", f"/{index.generation}/_update/d3", params={"refresh": "true"}, body=body)
        assert verify(opensearch_engine, index.generation, ledger, deep=1.0).inside == ["d3"]


def test_an_index_without_types_works_as_before(index, opensearch_engine):
    """Indices of earlier versions have no types in their lineage and no typed fields."""
    made = lineage.read(opensearch_engine, index.generation).as_meta()
    del made["types"]
    opensearch_engine.request("PUT", f"/{index.generation}/_mapping", body={"_meta": {"termweave": made}})
    old = tw.connect(opensearch_engine.url).index(index.name)
    assert [hit.id for hit in old.search("json", where="year=2016")] == ["d1"]
    assert len(old.search("json", where="kind=a")) == 3
    with pytest.raises(UsageError, match="no field 'year'") as refused:
        old.search("json", sort="year")
    assert "built again" in refused.value.hint
