"""Verification on a real OpenSearch: what is missing, extra or altered is named, whatever it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.catalog import statistics_store
from termweave.catalog.generations import live
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.errors import VerificationFailed
from termweave.indexer import BuildOptions, UpdateMode, build, update, verify, verify_against_source
from termweave.indexer.generations import index_setup, listing
from termweave.indexer.ledger import storage

from .builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine


def test_verification_names_what_is_missing_extra_and_altered(opensearch_engine, name, corpus):
    source = corpus(numbered(50))
    built = build(opensearch_engine, source, name, BuildOptions())
    assert check(opensearch_engine, name).ok
    change = opensearch_engine.request
    change("DELETE", f"/{built.index}/_doc/d7")
    stored = change("GET", f"/{built.index}/_doc/d8")["_source"]
    change("PUT", f"/{built.index}/_doc/stranger", body={**stored, "id": "stranger"})
    change("PUT", f"/{built.index}/_doc/d9", body={**stored, "id": "d9"})
    found = check(opensearch_engine, name, deep=False)
    assert (found.missing, found.extra, found.ok) == (["d7"], ["stranger"], False)
    assert set(found.altered) == {"d9"}
    against = verify_against_source(opensearch_engine, built.index, source)
    assert (against.missing, against.extra, against.altered) == (["d7"], ["stranger"], ["d9"])


@pytest.mark.parametrize("flip", ["weight", "vector", "half", "text", "title"])
def test_one_flipped_value_in_one_document_is_found_by_reading_back(opensearch_engine, name, corpus, flip):
    built = build(opensearch_engine, corpus(numbered(20)), name, BuildOptions())
    stored = opensearch_engine.request("GET", f"/{built.index}/_doc/d8")["_source"]
    if flip == "weight":
        stored["weights"][next(iter(stored["weights"]))] += 1
    elif flip == "vector":
        stored["vector"][5] += 1e-6
    elif flip == "half":
        stored["vector_fp16"] = stored["vector_fp16"][:-4] + "AAA="
    else:
        stored[flip] += "!"
    opensearch_engine.request("PUT", f"/{built.index}/_doc/d8", body=stored)
    assert check(opensearch_engine, name, deep=False).ok  # the digests beside it are as they were
    assert check(opensearch_engine, name, deep=True).altered == ["d8"]


@pytest.mark.parametrize(
    "change",
    [
        {"id": ["d8", "d9"]},
        {"id": 8},
        {"text": ["one", "two"]},
        {"title": 7},
        {"passage": 3},
        {"passage": [1, 2], "passage_start": None, "passage_end": []},
        {"weights": [{"tea": 3}]},
        {"vector_fp16": "AAAA"},
        {"source_digest": [1, 2]},
    ],
    ids=str,
)
def test_a_value_that_termweave_never_writes_is_damage_like_any_other(opensearch_engine, name, corpus, change):
    source = corpus(numbered(20))
    index = build(opensearch_engine, source, name, BuildOptions()).index
    stored = opensearch_engine.request("GET", f"/{index}/_doc/d8")["_source"]
    opensearch_engine.request("PUT", f"/{index}/_doc/d8", params={"refresh": True}, body={**stored, **change})
    for found in (check(opensearch_engine, name), verify_against_source(opensearch_engine, index, source, deep=1.0)):
        assert "d8" in {*found.altered, *found.extra}
    update(opensearch_engine, source, name, BuildOptions())  # whatever it mends of that, it ends


def test_a_flipped_value_of_a_field_that_users_declared_is_found_by_reading_back(opensearch_engine, name, corpus):
    options = replace(LEXICAL, mapping={"properties": {"year": {"type": "integer"}, "month": {"type": "integer"}}})
    built = build(opensearch_engine, corpus([{**each, "year": 2020} for each in numbered(5)]), name, options)
    assert check(opensearch_engine, name, deep=True).ok
    for number, other in enumerate(({"year": 2021}, {"month": 5})):
        change = {"doc": other}
        opensearch_engine.request("POST", f"/{built.index}/_update/d{number}", body=change)
    opensearch_engine.request("POST", f"/{built.index}/_update/d2", body={"script": "ctx._source.remove('year')"})
    assert check(opensearch_engine, name, deep=False).ok
    assert check(opensearch_engine, name, deep=True).altered == ["d0", "d1", "d2"]


def test_a_build_that_finds_a_difference_is_not_published(opensearch_engine, name, corpus, monkeypatch):
    finish = index_setup.finish_loading

    def meddle(engine, index, *rest):
        engine.request("DELETE", f"/{index}/_doc/d3")
        finish(engine, index, *rest)

    monkeypatch.setattr(index_setup, "finish_loading", meddle)
    with pytest.raises(VerificationFailed, match="1 missing"):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    monkeypatch.undo()
    built = build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)  # what is missing is sent again, and no more
    assert (built.documents, built.sent) == (10, 1)
    assert check(opensearch_engine, name).ok


def test_deleted_statistics_are_missed_and_whoever_keeps_a_copy_puts_them_back(opensearch_engine, name, corpus):
    source = corpus(numbered(3))
    assert build(opensearch_engine, source, name, BuildOptions(), gate=lambda _: "Not today.").missed == "Not today."
    (unpublished,) = listing.list_generations(opensearch_engine, name)
    opensearch_engine.request("DELETE", f"/{statistics_store.companion(unpublished.index)}")
    built = build(opensearch_engine, source, name, BuildOptions())  # goes on with it
    assert built.index == unpublished.index
    assert check(opensearch_engine, name).ok
    opensearch_engine.request("DELETE", f"/{statistics_store.companion(built.index)}")
    for found in (check(opensearch_engine, name), verify_against_source(opensearch_engine, built.index, source)):
        assert (found.same, found.ok, found.lost) == (True, False, statistics_store.companion(built.index))
    update(opensearch_engine, source, name, BuildOptions())
    assert check(opensearch_engine, name).ok


def test_statistics_of_which_a_part_is_missing_are_missed_and_stored_again(opensearch_engine, name, corpus, monkeypatch):
    monkeypatch.setattr(statistics_store, "_CHUNK", 100)
    source = corpus(numbered(50))
    built = build(opensearch_engine, source, name, BuildOptions())
    parts = f"/{statistics_store.companion(built.index)}/_doc"
    assert opensearch_engine.request("GET", f"{parts}/3")["found"]
    for part in (0, 2):
        opensearch_engine.request("DELETE", f"{parts}/{part}", params={"refresh": True})
        assert check(opensearch_engine, name).lost == statistics_store.companion(built.index)
        update(opensearch_engine, source, name, BuildOptions())
        assert check(opensearch_engine, name).ok


def test_a_copy_killed_while_its_statistics_are_stored_gets_all_of_them(opensearch_engine, name, corpus, monkeypatch, tmp_path):
    monkeypatch.setattr(statistics_store, "_CHUNK", 100)
    source, request = corpus(numbered(50)), opensearch_engine.request
    build(opensearch_engine, source, name, BuildOptions())

    def stops(method, path, **options):
        answer = request(method, path, **options)
        if ".stats/_doc/" in path:
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as dying:
        dying.setattr(opensearch_engine, "request", stops)
        with pytest.raises(KeyboardInterrupt):
            update(opensearch_engine, source, name, BuildOptions(), mode=UpdateMode(new=True))
    opensearch_engine.request("POST", "/_refresh")
    updated = update(opensearch_engine, source, name, BuildOptions(), mode=UpdateMode(new=True))
    monkeypatch.setattr(statistics_store.paths, "cache", lambda: tmp_path / "another host")
    assert statistics_store.load(opensearch_engine, updated.index, read_lineage(opensearch_engine, updated.index)) is not None


def test_a_sample_is_read_back(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(300)), name, LEXICAL)
    with storage.existing(opensearch_engine, built.index) as ledger:
        found = verify(opensearch_engine, built.index, ledger, deep=0.1)
    assert found.ok
    assert 30 <= found.read <= 40


def test_ids_that_would_play_with_the_terminal_are_quoted(opensearch_engine, name, corpus, capsys):
    strange = ["line\nfeed", "nul\x00", "\x1b[2Jclear"]
    source = corpus([{"_id": each, "text": "x"} for each in [*strange, "a b", "\u732b"]])
    index = build(opensearch_engine, source, name, LEXICAL).index
    opensearch_engine.request("POST", f"/{index}/_delete_by_query?refresh=true", body={"query": {"match_all": {}}})
    assert run(["verify", name, "--url", opensearch_engine.url]) == VerificationFailed.exit_status
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines[1:]) == sorted(f"  missing: {each}" for each in [*map(repr, strange), "a b", "\u732b"])


def test_verification_reads_documents_that_are_not_ours(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(3)), name, LEXICAL)
    lines = b"".join(b'{"index":{"_id":"foreign-%d"}}\n{"text":"not ours"}\n' % number for number in range(1500))
    opensearch_engine.request("POST", f"/{built.index}/_bulk", params={"refresh": True}, body=lines)
    found = check(opensearch_engine, name)
    assert len(found.extra) == 1500
    assert found.missing == found.altered == []
