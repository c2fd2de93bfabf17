"""Updates on a real OpenSearch: what changed is sent, what is gone is deleted on demand, and a whole new build would give the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave import corpora
from termweave.errors import VerificationFailed
from termweave.indexer import BuildOptions, up_to_date
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.diff import ChangeCounts
from termweave.indexer.options import Window
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from termweave.support import paths
from tests.indexer.builds import LEXICAL
from tests.indexer.conftest import stopping

pytestmark = pytest.mark.engine

WINDOW = Window(20, 15)
IN_PLACE_OR_NOT = pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])


def numbered(count):
    return {f"d{number}": f"text about number{number}" for number in range(count)}


@pytest.mark.parametrize(
    ("options", "new"), [(LEXICAL, False), (LEXICAL, True), (BuildOptions(), True)], ids=["in place", "copy", "copy with models"]
)
def test_only_what_differs_is_sent_and_only_on_demand_deleted(desk, new, options):
    documents = numbered(20)
    built = desk.build(documents, options)
    statistics = Index.open(desk.engine, desk.name).lineage.statistics
    documents |= {"d3": "changed entirely", "fresh": "a new document"}
    del documents["d5"], documents["d6"]
    source = desk.source(documents)
    first = desk.update(source, options, new=new)
    assert first.counts == ChangeCounts(new=1, changed=1, unchanged=17, gone=2)
    assert (first.sent, first.deleted, first.documents, desk.clean()) == (2, 0, 21, 21)
    assert (first.index == built.index) is not new
    assert desk.live == first.index
    second = desk.update(source, options, new=new, delete=True)
    assert second.counts == ChangeCounts(new=0, changed=0, unchanged=19, gone=2)
    assert (second.sent, second.deleted, second.documents, desk.clean(source)) == (0, 2, 19, 19)
    index = Index.open(desk.engine, desk.name)
    assert [hit.id for hit in index.search("changed entirely", mode="lexical")] == ["d3"]
    assert index.lineage.statistics == statistics
    assert index.lineage.source["fingerprint"] == source.fingerprint
    third = desk.update(source, options, delete=True)
    assert (third.sent, third.deleted, third.notes) == (0, 0, ())
    assert desk.engine.request("GET", f"/{built.index}/_count")["count"] == (20 if new else 19)


def test_what_cannot_be_read_is_not_taken_for_gone(desk, tmp_path):
    """Nobody knows the id of a broken line: it may be that of the document that is missing."""
    path = tmp_path / "corpus.jsonl"
    lines = [f'{{"_id": "d{number}", "text": "text {number}"}}' for number in range(5)]

    def updated(*lines):
        path.write_text("\n".join(lines))
        return desk.update(corpora.open_source(path, skip_bad=True), replace(LEXICAL, skip_bad=True), delete=True)

    path.write_text("\n".join(lines))
    desk.build(corpora.open_source(path))
    broken = updated(*lines[:3], lines[3][:-2], lines[4].replace("text 4", "changed"))
    assert (broken.counts, broken.deleted, broken.documents) == (ChangeCounts(new=0, changed=1, unchanged=3, gone=1), 0, 5)
    assert "Not deleted: 1 document that the source does not have, because 1 entry of it could not be read" in broken.warnings[0]
    assert desk.clean() == 5
    assert updated(*lines, "{").warnings == ()  # nothing is missing
    assert updated(*lines[1:]).deleted == 1


def test_passages_come_and_go_with_their_documents(desk):
    def long(parts):
        return " ".join(f"This is sentence number{part} of a text that grows." for part in range(parts))

    documents = {"grows": long(2), "shrinks": long(12), "stays": long(8), "gone": long(8)}
    desk.build(documents, replace(LEXICAL, passages=WINDOW, shards=2))
    source = desk.source({"grows": long(9), "shrinks": "Short now.", "stays": long(8)})
    updated = desk.update(source)
    assert updated.counts == ChangeCounts(new=0, changed=2, unchanged=1, gone=1)
    assert desk.clean() == 4
    assert (updated.deleted, updated.outdated > 1) == (0, True)  # what "shrinks" and the whole "grows" were
    desk.update(source, delete=True)
    assert desk.clean(source) == 3


def test_without_its_ledger_the_stored_digests_are_compared(desk):
    storage.forget(desk.engine, desk.build(numbered(30)).index)
    source = desk.source(numbered(30) | {"d7": "other"})
    updated = desk.update(source)
    assert (updated.counts.changed, updated.sent) == (1, 1)
    assert "no ledger" in updated.notes[0]
    assert "30 documents were taken as stored" in updated.notes[0]
    desk.clean(source)


def alter(desk, identity, **fields):
    """Change fields of a stored document, or with `_id` of a copy of it; returns what was stored."""
    stored = desk.request("GET", f"/_doc/{identity}")["_source"]
    desk.request("PUT", f"/_doc/{fields.pop('_id', identity)}", {**stored, **fields})
    return stored


def test_what_somebody_else_did_to_the_index_is_mended(desk):
    source = desk.source(numbered(30))
    desk.build(source)
    desk.request("DELETE", "/_doc/d7")
    alter(desk, "d8", _id="d9", id="d9")
    updated = desk.update(source)
    assert updated.counts == ChangeCounts(new=1, changed=1, unchanged=28, gone=0)
    assert "2 documents were not stored as this host's ledger said" in updated.notes[0]
    desk.clean(source)


@IN_PLACE_OR_NOT
def test_damage_is_never_taken_into_the_ledger(desk, new):
    source, options = desk.source(numbered(30)), BuildOptions(dense="none")
    desk.build(source, options)
    stored = desk.request("GET", "/_doc/d8")["_source"]
    weights = {**stored["weights"], next(iter(stored["weights"])): 1}
    alter(desk, "d8", weights=weights, encoding_digest=stored["encoding_digest"] + 1)
    alter(desk, "d9", text="other", source_digest=4711)
    updated = desk.update(source, options, new=new)
    assert (updated.counts, updated.sent) == (ChangeCounts(new=0, changed=2, unchanged=28, gone=0), 2)
    desk.clean(source)
    assert desk.request("GET", "/_doc/d8")["_source"] == stored


def test_damage_of_a_document_that_the_source_lost_is_named_until_it_is_deleted(desk):
    documents = numbered(30)
    desk.build(documents)
    alter(desk, "d8", encoding_digest=7)
    del documents["d8"]
    source = desk.source(documents)
    for _ in range(2):
        with pytest.raises(VerificationFailed, match=r"1 altered.*'d8'.*look first"):
            desk.update(source)
    desk.update(source, delete=True)
    desk.clean(source)


@pytest.mark.parametrize(("claims", "way"), [("zzz", "--delete-missing"), ("d10", "delete --id"), (None, "--delete-missing")])
def test_a_foreign_document_stays_extra_until_it_is_deleted(desk, claims, way):
    source = desk.source(numbered(30))
    desk.build(source)
    if claims:
        alter(desk, "d10", id=claims, _id="zzz")
    else:
        desk.request("PUT", "/_doc/zzz", {"text": "not ours"})
    for _ in range(2):
        with pytest.raises(VerificationFailed, match=r"1 extra, 0 altered.*'zzz'.*look first.*--id"):
            desk.update(source)
    with storage.existing(desk.engine, desk.live) as ledger:
        assert ledger.total == 30
    if way == "delete --id":
        desk.run("delete", "--id", "zzz", "--yes")
        desk.update(source)
    else:
        assert desk.update(source, delete=True).deleted == 1
    assert desk.clean(source) == 30


def test_what_another_host_changed_is_kept_and_no_damage(desk, monkeypatch, tmp_path, capsys):
    desk.build(numbered(10))
    desk.run("delete", "--id", "d7", "--yes")
    desk.run("verify")
    alter(desk, "d8", encoding_digest=7)
    desk.run("verify", status=VerificationFailed.exit_status)
    assert "or index with --update" in capsys.readouterr().err
    with monkeypatch.context() as there:
        there.setattr(paths, "state", lambda: tmp_path / "elsewhere")
        desk.update({**numbered(10), "theirs": "added by another host"})
        desk.run("verify")
    desk.run("verify", status=VerificationFailed.exit_status)
    said = capsys.readouterr().err
    assert "updated from another host" in said
    assert "Index again" not in said
    assert desk.update(numbered(10)).counts == ChangeCounts(new=0, changed=1, unchanged=9, gone=1)  # d8 is mended here
    assert desk.clean() == 11


def test_a_file_that_comes_or_goes_meanwhile_hides_no_other(desk, tmp_path, monkeypatch):
    """A folder is read twice; its documents are told apart by their ids, not by their places."""
    (folder := tmp_path / "texts").mkdir()
    for each in "bcd":
        (folder / f"{each}.txt").write_text(f"text of {each}")
    run = Pipeline.run

    def between(change):
        def changed(self, progress):
            change()
            return run(self, progress)

        monkeypatch.setattr(Pipeline, "run", changed)

    between(lambda: (folder / "a.txt").write_text("came meanwhile"))
    assert desk.build(corpora.open_source(folder)).documents == 3
    for each in "cd":
        (folder / f"{each}.txt").write_text(f"changed text of {each}")
    between((folder / "b.txt").unlink)
    updated = desk.update(corpora.open_source(folder))
    assert (updated.counts.new, updated.counts.changed, updated.sent) == (1, 2, 3)
    desk.clean()


@IN_PLACE_OR_NOT
def test_a_repeated_update_that_finds_nothing_left_to_do_is_from_its_own_source(desk, new):
    before, after = desk.source(numbered(3), name="before.jsonl"), desk.source(numbered(5), name="after.jsonl")
    desk.build(before)
    desk.update(before)
    assert up_to_date(desk.engine, before, desk.name, LEXICAL)  # there was nothing to change
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.update(after, new=new)
    assert bool(up_to_date(desk.engine, before, desk.name, LEXICAL)) == new  # a copy leaves the live generation what it was
    again = desk.update(after, new=new)
    assert (again.counts.new, again.documents) == (0, 5)  # all was sent before it was stopped
    stored = Index.open(desk.engine, desk.name).lineage
    assert (stored.source["name"], stored.fingerprint, bool(stored.updated)) == ("after.jsonl", "", True)
    assert up_to_date(desk.engine, before, desk.name, LEXICAL) is None
