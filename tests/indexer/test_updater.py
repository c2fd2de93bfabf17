"""Updates on a real OpenSearch: what changed is sent, what is gone is deleted on demand; the plan, and the refusal of a large deletion."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from termweave import corpora
from termweave.catalog.lineage import CHANGING
from termweave.errors import TermweaveError, UsageError, VerificationFailed
from termweave.indexer import BuildOptions, LargeDeletion, UpdateMode, plan_update, up_to_date, update, updater
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.diff import ChangeCounts
from termweave.indexer.options import Window
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.support import paths
from tests.indexer.builds import LEXICAL, command, numbered
from tests.indexer.conftest import stopping

WINDOW = Window(20, 15)
IN_PLACE_OR_NOT = pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])


def texts(count):
    return {f"d{number}": f"text about number{number}" for number in range(count)}


@pytest.mark.parametrize(("options", "new"), [(LEXICAL, False), (LEXICAL, True), (BuildOptions(), True)])
def test_only_what_differs_is_sent_and_only_on_demand_deleted(desk, new, options):
    documents = texts(20)
    built = desk.build(documents, options)
    statistics = desk.open().lineage.statistics
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
    index = desk.open()
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
    assert "Not deleted: 1 document that the source does not have, because 1 entry of the source" in broken.warnings[0]
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
    storage.forget(desk.engine, desk.build(texts(30)).index)
    source = desk.source(texts(30) | {"d7": "other"})
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


@IN_PLACE_OR_NOT
def test_what_somebody_else_did_to_the_index_is_mended_and_damage_is_never_taken_into_the_ledger(desk, new):
    source, options = desk.source(texts(30)), BuildOptions(dense="none")
    desk.build(source, options)
    desk.request("DELETE", "/_doc/d7")
    stored = alter(desk, "d10", _id="d11", id="d11")
    weights = {**stored["weights"], next(iter(stored["weights"])): 1}
    alter(desk, "d10", weights=weights, encoding_digest=stored["encoding_digest"] + 1)
    alter(desk, "d9", text="other", source_digest=4711)
    updated = desk.update(source, options, new=new)
    assert (updated.counts, updated.sent) == (ChangeCounts(new=1, changed=3, unchanged=26, gone=0), 4)
    assert "4 documents were not stored as this host's ledger said" in updated.notes[0]
    desk.clean(source)
    assert desk.request("GET", "/_doc/d10")["_source"] == stored


def test_damage_of_a_document_that_the_source_lost_is_named_until_it_is_deleted(desk):
    documents = texts(30)
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
    desk.build(texts(30))
    source = desk.source(texts(30) | {"d7": "changed"})
    if claims:
        alter(desk, "d10", id=claims, _id="zzz")
    else:
        desk.request("PUT", "/_doc/zzz", {"text": "not ours"})
    for _ in range(2):
        with pytest.raises(VerificationFailed, match=r"1 extra, 0 altered.*'zzz'.*look first.*--id"):
            desk.update(source)
        with storage.existing(desk.engine, desk.live) as ledger:
            assert (ledger.total, ledger.get("state")) == (30, "updating")
        assert desk.open().lineage.fingerprint == CHANGING  # its content is not what the build made
    if way == "delete --id":
        desk.run("delete", "--id", "zzz", "--yes")
        desk.update(source)
    else:
        assert desk.update(source, delete=True).deleted == 1
    assert desk.clean(source) == 30
    assert desk.open().lineage.fingerprint == ""


def test_what_another_host_changed_is_kept_and_no_damage(desk, monkeypatch, tmp_path):
    desk.build(texts(10))
    desk.run("delete", "--id", "d7", "--yes")
    desk.run("verify")
    alter(desk, "d8", encoding_digest=7)
    assert "or index with --update" in desk.run("verify", status=VerificationFailed.exit_status).err
    with monkeypatch.context() as there:
        there.setattr(paths, "state", lambda: tmp_path / "elsewhere")
        desk.update({**texts(10), "theirs": "added by another host"})
        desk.run("verify")
    said = desk.run("verify", status=VerificationFailed.exit_status).err
    assert "updated from another host" in said
    assert "Index again" not in said
    assert desk.update(texts(10)).counts == ChangeCounts(new=0, changed=1, unchanged=9, gone=1)  # d8 is mended here
    assert desk.clean() == 11


def test_a_file_that_comes_or_goes_meanwhile_hides_no_other(desk, tmp_path, monkeypatch):
    """A folder is read twice; its documents are told apart by their ids, not by their places."""
    (folder := tmp_path / "texts").mkdir()
    run = Pipeline.run

    def write(names, text, meanwhile):
        for each in names:
            (folder / f"{each}.txt").write_text(f"{text} of {each}")
        monkeypatch.setattr(Pipeline, "run", lambda *arguments: (meanwhile(), run(*arguments))[1])
        return corpora.open_source(folder)

    assert desk.build(write("bcd", "text", lambda: (folder / "a.txt").write_text("came meanwhile"))).documents == 3
    updated = desk.update(write("cd", "changed text", (folder / "b.txt").unlink))
    assert (updated.counts.new, updated.counts.changed, updated.sent) == (1, 2, 3)
    desk.clean()


@IN_PLACE_OR_NOT
def test_a_repeated_update_that_finds_nothing_left_to_do_is_from_its_own_source(desk, new):
    before, after = desk.source(texts(3), name="before.jsonl"), desk.source(texts(5), name="after.jsonl")
    desk.build(before)
    desk.update(before)
    assert up_to_date(desk.engine, before, desk.name, LEXICAL)  # there was nothing to change
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.update(after, new=new)
    assert bool(up_to_date(desk.engine, before, desk.name, LEXICAL)) == new  # a copy leaves the live generation what it was
    again = desk.update(after, new=new)
    assert (again.counts.new, again.documents) == (0, 5)  # all was sent before it was stopped
    stored = desk.open().lineage
    assert (stored.source["name"], stored.fingerprint, bool(stored.updated)) == ("after.jsonl", "", True)
    assert up_to_date(desk.engine, before, desk.name, LEXICAL) is None


SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "update-plan.1.json"
DELETE = UpdateMode(delete_missing=True)
ANALYSIS = '{"analyzer": {"own": {"type": "custom", "tokenizer": "standard", "filter": ["lowercase"]}}}'


def test_after_an_answer_a_large_deletion_changes_a_copy_and_the_source_is_not_read_again(desk, monkeypatch):
    with pytest.raises(UsageError, match="no index"):
        plan_update(desk.engine, desk.source(3), desk.name, LEXICAL)
    built, source = desk.build(30), desk.source(4)
    plan = plan_update(desk.engine, source, desk.name, LEXICAL, DELETE)
    assert (plan.documents, plan.deletions, plan.share, plan.allowed, plan.new) == (30, 26, 0.87, False, True)
    with updater.Update(desk.engine, source, desk.name, LEXICAL, mode=DELETE) as job:
        job.read(lambda *_: None)
        assert (job.large.deletions, job.large.documents) == (26, 30)
        with pytest.raises(LargeDeletion):
            job.write(lambda *_: None)
        with pytest.raises(TermweaveError, match="Another build of"):  # what was counted cannot change meanwhile
            desk.update(source)
        with monkeypatch.context() as patch:
            patch.delattr(updater, "read_corpus")
            job.large = None
            done = job.write(lambda *_: None)
    assert done.counts == plan.counts == ChangeCounts(new=0, changed=0, unchanged=4, gone=26)
    assert (done.deleted, done.documents, desk.clean(source)) == (26, 4, 4)
    assert desk.live == done.index != built.index
    desk.run("rollback")
    assert desk.live == built.index
    assert desk.clean(desk.source(30)) == 30
    updated = update(desk.engine, desk.source(27), desk.name, LEXICAL, DELETE)
    assert (updated.deleted, updated.index) == (3, built.index)  # a tenth is deleted in place


@pytest.fixture
def deletion(desk, tmp_path):
    """The words of a command that would delete 26 of 30 documents."""
    desk.build(30)
    desk.source(4)
    return command(tmp_path / "corpus.jsonl", desk.name, "--update", "--delete-missing")


def test_the_plan_deletes_nothing_and_without_a_terminal_it_is_refused(desk, deletion, shell):
    before = desk.request("GET", "/_mapping")
    shown = shell(*deletion, "--plan").out
    assert "delete     26, more than the 10% that may be deleted without --yes" in shown
    assert "where      a copy" in shown
    plan = json.loads(shell(*deletion, "--plan", "--json").out)
    jsonschema.validate(plan, json.loads(SCHEMA.read_text()))
    assert (plan["deletions"], plan["documents"], plan["allowed"]) == (26, 30, False)
    said = shell(*deletion, status=2).err
    assert f"would delete 26 of 30 documents of '{desk.name}', and 10% may be deleted" in said
    assert "add `--yes` (in Python UpdateMode(allow_deletions=0.87))" in said
    with pytest.raises(UsageError, match="allow_deletions must be a share from 0 to 1"):
        UpdateMode(allow_deletions=float("nan"))
    assert len(desk.generations) == 1
    assert desk.request("GET", "/_mapping") == before
    assert desk.count == 30
    assert "26 deleted" in shell(*deletion, "--yes").out
    assert desk.count == 4


def test_a_terminal_is_asked(desk, deletion, own_places):
    program = f"import sys; from termweave.cli import run; sys.exit(run({[*deletion, '--url', desk.engine.url]!r}))"
    environment = {**os.environ, "XDG_STATE_HOME": str(own_places / "state"), "PYTHONWARNINGS": "ignore"}
    for answer, status, left in (("n", 1, 30), ("\x04", 2, 30), ("y", 0, 4)):
        master, slave = pty.openpty()
        streams = {"stdin": slave, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", program], **streams, env=environment) as child:
            os.write(master, f"{answer}\n".encode())
            _, err = child.communicate(timeout=120)
        os.close(master)
        os.close(slave)
        assert child.returncode == status, err
        assert f"Delete 26 of the 30 documents of '{desk.name}'?".encode() in err
        assert (b"Add --yes to run the command without questions" in err) == (answer == "\x04")  # Ctrl-D is no answer
        assert desk.count == left


def test_an_update_takes_the_options_of_its_build_and_no_others(index, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(f'{{"refresh_interval": "5s", "number_of_routing_shards": 4, "analysis": {ANALYSIS}}}')
    same = ["--passage-size", "50", "--signals", "lexical", "--analyzer", "german", "--shards", "2", "--replicas", "0"]
    same += ["--settings", str(settings)]
    index(numbered(2), *same)
    assert "1 new" in index(numbered(3), "--update", *same).out
    for option, value, stored in (("--analyzer", "english", "german"), ("--prune", "0.1", "none")):
        told = index(numbered(4), "--update", option, value, status=2).err
        assert f"An update cannot change {option}: the live generation was built with {stored}, not {value}" in told
        assert f"remove {option}; to build anew, remove --update" in told
    settings.write_text('{"refresh_interval": "6s"}')
    assert '"index.refresh_interval":"5s"' in index(numbered(4), "--update", "--settings", str(settings), status=2).err


def test_an_update_takes_the_models_of_its_build_and_no_others(index):
    """Another model, one that the index has no signal for, and none where there is one."""
    same = ("--weights", "fast", "--dense", "none")
    index(numbered(2), *same)
    for flag, value in (("--weights", "bm25-german"), ("--dense", "fast"), ("--weights", "none")):
        told = index(numbered(4), "--update", *same, flag, value, status=2).err
        assert f"An update cannot change {flag}: the live generation was built with" in told
