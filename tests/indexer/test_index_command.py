"""What `index`, `verify` and `delete` say on a real OpenSearch: sentences that are true and name the next step."""

from __future__ import annotations

import orjson
import pytest

from termweave.cli import run
from termweave.indexer import building, generations, ledgers
from termweave.indexer.generations import live

from .builds import numbered


@pytest.fixture
def index(opensearch_engine, name, tmp_path, capsys):
    """Run the verb over documents; what it said."""
    path = tmp_path / "corpus.jsonl"

    def call(documents, *arguments, status=0):
        lines = [each if isinstance(each, bytes) else orjson.dumps(each) for each in documents]
        path.write_bytes(b"\n".join(lines) + b"\n")
        plain = ["index", str(path), name, "--weights", "none", "--dense", "none", "--url", opensearch_engine.url]
        assert run([*plain, *arguments]) == status
        return capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plan", "--update"], "leave out --plan or --update"),
        (["--passage-stride", "10"], "belongs to --passage-size"),
        (["--on", "./nfcorpus"], "--on names the queries of a gate"),
        (["--new"], "belong to --update"),
        (["--of-live"], "belong together"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(tmp_path, capsys, arguments, said):
    assert run(["index", str(tmp_path), "docs", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.engine
def test_what_is_being_built_is_not_deleted(opensearch_engine, name, index, capsys):
    index(numbered(3))
    with ledgers.lease(opensearch_engine, name):
        assert run(["delete", name, "--yes", "--url", opensearch_engine.url]) == 1
        assert f"Another build of '{name}' is running here" in capsys.readouterr().err
    assert len(generations.of(opensearch_engine, name)) == 1
    assert run(["delete", name, "--yes", "--url", opensearch_engine.url]) == 0
    assert live(opensearch_engine, name) is None


@pytest.mark.engine
def test_a_build_that_fails_does_not_speak_of_ctrl_c(opensearch_engine, name, index, monkeypatch):
    send = building.send_rest

    def meddle(engine, source, planned, current, progress):
        engine.request("DELETE", f"/{current.index}")
        return send(engine, source, planned, current, progress)

    monkeypatch.setattr(building, "send_rest", meddle)
    said = index(numbered(10), status=1).err
    assert "was deleted while it was being built" in said
    assert "Ctrl-C" not in said


@pytest.mark.engine
def test_a_copy_has_its_own_time_and_rollback_finds_the_way_back(opensearch_engine, name, index):
    index(numbered(3))
    before = live(opensearch_engine, name)
    index(numbered(4), "--update", "--new")
    copy, parent = generations.of(opensearch_engine, name)
    assert (parent.index, copy.live) == (before, True)
    assert copy.created > parent.created
    assert generations.previous(opensearch_engine, name) == before


@pytest.mark.engine
def test_a_passage_and_a_document_of_one_id_are_named_and_none_is_dropped(index):
    long = {"_id": "a", "text": "This is a sentence of a text. " * 20}
    odd = {"_id": "a#1", "text": "short"}
    for documents, said in (([long, odd], "'a' (line 1) and 'a#1' (line 2)"), ([odd, long], "'a#1' (line 1) and 'a' (line 2)")):
        for more in ([], ["--skip-bad"], ["--plan"]):
            told = index(documents, "--passage-size", "20", *more, status=1).err
            assert f"the documents {said} would both be stored as 'a#1': passages are called DOCUMENT#NUMBER" in told
    index([long, odd])  # whole, each has its own
