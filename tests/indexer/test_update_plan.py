"""`index --update`: which options it takes, its plan, and the refusal of an update that deletes too much, also at a real terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave.cli import run
from termweave.errors import TermweaveError, UsageError
from termweave.indexer import LargeDeletion, UpdateMode, plan_update, update, update_plan, updater
from termweave.indexer.ledger.diff import ChangeCounts
from tests.indexer.builds import LEXICAL, command, numbered

pytestmark = pytest.mark.engine
SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "update-plan.1.json"
DELETE = UpdateMode(delete_missing=True)
ANALYSIS = '{"analyzer": {"own": {"type": "custom", "tokenizer": "standard", "filter": ["lowercase"]}}}'


def test_a_large_deletion_is_refused_and_changes_nothing(desk):
    with pytest.raises(UsageError, match="allow_deletions must be a share from 0 to 1"):
        UpdateMode(allow_deletions=float("nan"))
    built = desk.build(30)
    few = desk.source([*numbered(4), {"_id": "fresh", "text": "a new document"}])
    with pytest.raises(LargeDeletion, match=r"would delete 26 of 30 documents of .*, and 10% may be deleted") as refused:
        update(desk.engine, few, desk.name, LEXICAL, DELETE)
    assert "add `--yes` (in Python UpdateMode(allow_deletions=0.87))" in refused.value.hint
    assert [each.index for each in desk.generations] == [built.index]
    assert desk.clean(desk.source(30)) == 30


def test_an_allowed_large_deletion_can_be_rolled_back_and_a_tenth_is_deleted_in_place(desk):
    built, source = desk.build(30), desk.source(4)
    updated = update(desk.engine, source, desk.name, LEXICAL, UpdateMode(delete_missing=True, allow_deletions=0.87))
    assert (updated.deleted, updated.documents) == (26, 4)
    assert desk.live == updated.index != built.index
    assert desk.clean(source) == 4
    desk.run("rollback")
    assert desk.live == built.index
    assert desk.clean(desk.source(30)) == 30
    updated = update(desk.engine, desk.source(27), desk.name, LEXICAL, DELETE)
    assert (updated.deleted, updated.index) == (3, built.index)


def test_after_an_answer_the_source_is_not_read_for_its_digests_again(desk, monkeypatch):
    built, source = desk.build(30), desk.source(4)
    with updater.Update(desk.engine, source, desk.name, LEXICAL, mode=DELETE) as job:
        job.read(lambda *_: None)
        assert (job.large.deletions, job.large.documents) == (26, 30)
        with pytest.raises(LargeDeletion):
            job.write(lambda *_: None)
        with pytest.raises(TermweaveError, match="Another build of"):  # what was counted cannot change meanwhile
            desk.update(source)
        monkeypatch.delattr(update_plan, "read_corpus")
        job.large = None
        done = job.write(lambda *_: None)
    assert (done.deleted, done.documents, desk.live) == (26, 4, done.index)
    assert done.index != built.index
    assert desk.clean(source) == 4


def test_a_plan_counts_what_the_update_does(desk):
    with pytest.raises(UsageError, match="no index"):
        plan_update(desk.engine, desk.source(3), desk.name, LEXICAL)
    documents = numbered(30)
    desk.build(documents)
    documents[3]["text"] = "changed"
    source = desk.source([*documents[1:], {"_id": "fresh", "text": "a new document"}])
    plan = plan_update(desk.engine, source, desk.name, LEXICAL, DELETE)
    assert (plan.documents, plan.deletions, plan.allowed, plan.new) == (30, 1, True, False)
    assert desk.clean() == 30
    updated = update(desk.engine, source, desk.name, LEXICAL, DELETE)
    assert updated.counts == plan.counts == ChangeCounts(new=1, changed=1, unchanged=28, gone=1)


@pytest.fixture
def deletion(desk, tmp_path):
    """The words of a command that would delete 26 of 30 documents."""
    desk.build(30)
    desk.source(4)
    return command(tmp_path / "corpus.jsonl", desk.name, desk.engine.url, "--update", "--delete-missing")


def count(desk):
    return desk.request("GET", "/_count")["count"]


def test_the_plan_deletes_nothing_and_without_a_terminal_it_is_refused(desk, deletion, capsys):
    before = desk.request("GET", "/_mapping")
    assert run([*deletion, "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "delete     26, more than the 10% that may be deleted without --yes" in shown
    assert "where      a copy" in shown
    assert run([*deletion, "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    jsonschema.validate(plan, json.loads(SCHEMA.read_text()))
    assert (plan["deletions"], plan["documents"], plan["allowed"]) == (26, 30, False)
    assert run(deletion) == 2
    assert "would delete 26 of 30 documents" in capsys.readouterr().err
    assert desk.request("GET", "/_mapping") == before
    assert count(desk) == 30
    assert run([*deletion, "--yes"]) == 0
    assert "26 deleted" in capsys.readouterr().out
    assert count(desk) == 4


def test_a_terminal_is_asked(desk, deletion, own_places):
    program = f"import sys; from termweave.cli import run; sys.exit(run({deletion!r}))"
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
        assert count(desk) == left


def test_an_update_takes_the_options_of_its_build_and_no_others(index, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(f'{{"refresh_interval": "5s", "number_of_routing_shards": 4, "analysis": {ANALYSIS}}}')
    same = ["--passage-size", "50", "--signals", "lexical", "--analyzer", "german", "--shards", "2", "--replicas", "0"]
    same += ["--settings", str(settings)]
    index(numbered(2), *same)
    assert "1 new" in index(numbered(3), "--update", *same).out
    for option, value, stored in (
        ("--analyzer", "english", "german"),
        ("--prune", "0.1", "none"),
    ):
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
