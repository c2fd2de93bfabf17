"""Documents that the server refuses: `index`, `verify` and searches agree on what is stored and say what to do."""

from __future__ import annotations

import orjson
import pytest

from termweave.cli import run
from termweave.search import Index

from .builds import numbered

pytestmark = pytest.mark.engine
LONG_ID = "y" * 40_000


@pytest.mark.usefixtures("long_ids")
def test_what_was_refused_is_counted_nowhere_and_said_everywhere(opensearch_engine, name, index, tmp_path, capsys):
    odd = [{"_id": f"{number}{LONG_ID}", "text": "an id that no field can hold"} for number in range(4)]
    first = index([*numbered(196), *odd], "--allow-refused", "5%")
    assert f"{name}: 196 documents in" in first.out
    assert "refused 4 of 200" in first.err
    assert "a term has at most 32,766 bytes" in first.err  # what to do, and not only in the file
    assert Index.open(opensearch_engine, name).lineage.documents == 196
    again = index([*numbered(197), *odd], "--allow-refused", "5%", "--update", "--json")
    found = orjson.loads(again.out)
    assert found["update"] == {"new": 1, "changed": 0, "unchanged": 196, "gone": 0, "refused": 4, "deleted": 0, "outdated": 0}
    assert found["documents"] == 197
    assert run(["verify", name, "--url", opensearch_engine.url]) == 0
    assert "4 documents or passages were refused" in capsys.readouterr().err
    assert run(["verify", name, str(tmp_path / "corpus.jsonl"), "--json", "--url", opensearch_engine.url]) == 4
    told = capsys.readouterr()
    assert len(orjson.loads(told.out)["refused"]) == 4
    assert "correct them in the source" in told.err
    assert "to mend it" not in told.err


@pytest.fixture
def years(tmp_path):
    """A file with a mapping whose years are numbers."""
    file = tmp_path / "own.json"
    file.write_text('{"properties": {"year": {"type": "integer"}}}')
    return str(file)


def test_a_changed_document_that_is_refused_stays_what_it_was(opensearch_engine, name, index, tmp_path, capsys, years):
    documents = [{**each, "year": 1999} for each in numbered(20)]
    index(documents, "--mapping", years)
    changed = [*documents[:7], {**documents[7], "year": "long ago"}, *documents[8:]]
    for _ in range(2):
        told = index(changed, "--update", "--allow-refused", "10%")
        assert "0 new, 0 changed, 1 refused, 19 unchanged" in told.out
        assert "Correct the value in the source" in told.err
        assert run(["verify", name, "--deep", "--url", opensearch_engine.url]) == 0
        assert "1 document or passage was refused" in capsys.readouterr().err
    assert run(["verify", name, str(tmp_path / "corpus.jsonl"), "--url", opensearch_engine.url]) == 4
    assert "refused all documents that differ" in capsys.readouterr().err
    assert "refused" not in index(documents, "--update").out
    assert run(["verify", name, "--url", opensearch_engine.url]) == 0
    assert "refused" not in capsys.readouterr().err


@pytest.mark.parametrize("parts", [(1, 40), (40, 1), (40, 20)])
def test_a_document_in_passages_that_is_refused_stays_what_it_was(opensearch_engine, name, index, tmp_path, years, parts):
    before, after = ({"_id": "long", "text": "This is a sentence of a text. " * part} for part in parts)
    index([*numbered(3), {**before, "year": 1999}], "--mapping", years, "--passage-size", "20")
    told = index([*numbered(3), {**after, "year": "long ago"}], "--update", "--allow-refused", "99%")
    assert "0 new, 0 changed, 1 refused, 3 unchanged" in told.out
    assert f"{name}: 4 documents" in told.out
    assert [hit.id for hit in Index.open(opensearch_engine, name).search("sentence", mode="lexical")] == ["long"]
    assert run(["verify", name, "--url", opensearch_engine.url]) == 0
    index([*numbered(3), {**after, "year": 2000}], "--update")
    assert run(["verify", name, str(tmp_path / "corpus.jsonl"), "--url", opensearch_engine.url]) == 0
