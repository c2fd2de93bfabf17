"""Copies of a generation, which updates are made in that must not touch the live one: left behind, gone on with, refused."""

from __future__ import annotations

import pytest

from termweave.catalog.generations import live
from termweave.errors import TermweaveError, UsageError
from termweave.indexer import UpdateMode, build, update
from termweave.indexer.generations import deletion, publication
from termweave.indexer.generations.listing import list_generations
from termweave.indexer.generations.publication import promote
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from tests.indexer.builds import LEXICAL, clean, numbered

pytestmark = pytest.mark.engine


def stop(*_, **__):
    raise KeyboardInterrupt


def leave_a_copy(engine, source, name, monkeypatch):
    """An update that is stopped when its copy is whole."""
    with monkeypatch.context() as patched:
        patched.setattr(Job, "_verify", stop)
        with pytest.raises(KeyboardInterrupt):
            update(engine, source, name, LEXICAL, mode=UpdateMode(new=True))


def test_a_copy_of_what_was_live_before_is_begun_anew(opensearch_engine, name, corpus, monkeypatch):
    build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    source = corpus(numbered(12))
    leave_a_copy(opensearch_engine, source, name, monkeypatch)
    (unfinished,) = [each.index for each in list_generations(opensearch_engine, name) if not each.complete]
    update(opensearch_engine, source, name, LEXICAL)  # the live one is another now
    updated = update(opensearch_engine, corpus(numbered(13)), name, LEXICAL, mode=UpdateMode(new=True))
    assert updated.counts.new == 1
    assert unfinished not in {each.index for each in list_generations(opensearch_engine, name)}
    clean(opensearch_engine, name)


def test_a_default_search_pipeline_hides_no_document_from_the_copy(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    path, hiding = f"/_search/pipeline/{name}", {"filter_query": {"query": {"match_none": {}}}}
    opensearch_engine.request("PUT", path, body={"request_processors": [hiding]})
    settings = {"index.search.default_pipeline": name}
    opensearch_engine.request("PUT", f"/{live(opensearch_engine, name)}/_settings", body=settings)
    try:
        updated = update(opensearch_engine, corpus(numbered(12)), name, LEXICAL, mode=UpdateMode(new=True))
        assert (updated.documents, updated.sent) == (12, 2)
    finally:
        clean(opensearch_engine, name)
        opensearch_engine.request("DELETE", path)


def test_what_was_sent_of_another_source_is_not_published(opensearch_engine, name, corpus, monkeypatch):
    build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    leave_a_copy(opensearch_engine, corpus(numbered(12), name="other.jsonl"), name, monkeypatch)
    updated = update(opensearch_engine, corpus(numbered(10)), name, LEXICAL, mode=UpdateMode(new=True))
    assert (updated.documents, updated.sent) == (10, 0)
    assert len(list_generations(opensearch_engine, name)) == 2  # the copy of the other source is gone


def test_a_copy_is_let_go_of_when_an_older_one_cannot_be_thrown_away(opensearch_engine, name, corpus, monkeypatch):
    build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    source = corpus(numbered(12))
    leave_a_copy(opensearch_engine, source, name, monkeypatch)
    file = storage.file_of(opensearch_engine, f"{name}-20000101000000-00000000")
    with storage.snapshot(opensearch_engine, live(opensearch_engine, name), file) as older:
        older.put("name", name)
        older.put("state", "copying")
    given, of_host = [], storage.open_ledgers

    def watched(*arguments):
        for index, ledger in of_host(*arguments):
            given.append(ledger)
            yield index, ledger

    monkeypatch.setattr(storage, "open_ledgers", watched)
    monkeypatch.setattr(deletion, "remove_generation", stop)
    with pytest.raises(KeyboardInterrupt):
        update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True))
    monkeypatch.undo()
    assert len(given) >= 2
    for ledger in given:
        with pytest.raises(TermweaveError, match="closed"):
            ledger.get("state")
    assert update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True)).sent == 0  # it goes on with the copy


@pytest.mark.parametrize("back", [False, True], ids=["live", "rolled back"])
def test_a_copy_whose_update_died_just_after_publishing_it_stays(opensearch_engine, name, corpus, monkeypatch, back):
    built = build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    publish = publication.publish

    def die(*arguments, **options):
        publish(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(publication, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        update(opensearch_engine, corpus(numbered(12)), name, LEXICAL, mode=UpdateMode(new=True))
    monkeypatch.undo()
    copy = live(opensearch_engine, name)
    assert copy != built.index
    if back:
        promote(opensearch_engine, name, built.index)
    source = corpus(numbered(13))
    assert update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True)).counts.new == (3 if back else 1)
    assert clean(opensearch_engine, name, source) == 13
    promote(opensearch_engine, name, copy)
    assert clean(opensearch_engine, name) == 12


def test_a_copy_that_misses_its_gate_leaves_the_live_generation(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)

    def no(_):
        return "No."

    source = corpus(numbered(6))
    assert update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True), gate=no).missed == "No."
    assert live(opensearch_engine, name) == built.index
    assert clean(opensearch_engine, name) == 5
    refused = list_generations(opensearch_engine, name)[0]
    assert (refused.complete, refused.missed, refused.documents) == (True, "No.", 6)
    with pytest.raises(UsageError, match="needs a new generation"):
        update(opensearch_engine, source, name, LEXICAL, gate=no)
    assert update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(new=True)).documents == 6
    assert refused in list_generations(opensearch_engine, name)  # it is whole: only `prune` removes it
    promote(opensearch_engine, name, refused.index)
    assert clean(opensearch_engine, name, source) == 6
