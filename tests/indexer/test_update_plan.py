"""The plan of an update, and the refusal of one that deletes too much, on a real OpenSearch and a real terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave.catalog.generations import live
from termweave.cli import run
from termweave.errors import TermweaveError, UsageError
from termweave.indexer import LargeDeletion, UpdateMode, build, plan_update, update, update_plan, updater
from termweave.indexer.generations.listing import list_generations
from termweave.indexer.ledger.diff import ChangeCounts
from tests.indexer.builds import LEXICAL, clean, numbered

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "update-plan.1.json"
DELETE = UpdateMode(delete_missing=True)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(UsageError, match="allow_deletions must be a share from 0 to 1"):
        UpdateMode(allow_deletions=share)


@pytest.mark.engine
class TestUpdate:
    @pytest.mark.parametrize("new", [False, True])
    def test_a_large_deletion_is_refused_and_changes_nothing(self, opensearch_engine, name, corpus, new):
        built = build(opensearch_engine, corpus(numbered(30)), name, LEXICAL)
        few = corpus([*numbered(4), {"_id": "fresh", "text": "a new document"}])
        with pytest.raises(LargeDeletion, match=r"would delete 26 of 30 documents of .*, and 10% may be deleted") as refused:
            update(opensearch_engine, few, name, LEXICAL, mode=UpdateMode(delete_missing=True, new=new))
        assert "add `--yes` (in Python UpdateMode(allow_deletions=0.87))" in refused.value.hint
        assert [each.index for each in list_generations(opensearch_engine, name)] == [built.index]
        assert clean(opensearch_engine, name, corpus(numbered(30))) == 30

    def test_an_allowed_large_deletion_can_be_rolled_back(self, opensearch_engine, name, corpus):
        built = build(opensearch_engine, corpus(numbered(30)), name, LEXICAL)
        source = corpus(numbered(4))
        updated = update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(delete_missing=True, allow_deletions=0.87))
        assert (updated.deleted, updated.documents) == (26, 4)
        assert live(opensearch_engine, name) == updated.index != built.index
        assert clean(opensearch_engine, name, source) == 4
        assert run(["rollback", name, "--url", opensearch_engine.url]) == 0
        assert live(opensearch_engine, name) == built.index
        assert clean(opensearch_engine, name, corpus(numbered(30))) == 30

    def test_after_an_answer_the_source_is_not_read_for_its_digests_again(self, opensearch_engine, name, corpus, monkeypatch):
        built = build(opensearch_engine, corpus(numbered(30)), name, LEXICAL)
        source = corpus(numbered(4))
        with updater.Update(opensearch_engine, source, name, LEXICAL, mode=DELETE) as job:
            job.read(lambda *_: None)
            assert (job.large.deletions, job.large.documents) == (26, 30)
            with pytest.raises(LargeDeletion):
                job.write(lambda *_: None)
            with pytest.raises(TermweaveError, match="Another build of"):  # what was counted cannot change meanwhile
                update(opensearch_engine, source, name, LEXICAL)
            monkeypatch.delattr(update_plan, "read_corpus")
            job.large = None
            done = job.write(lambda *_: None)
        assert (done.deleted, done.documents, live(opensearch_engine, name)) == (26, 4, done.index)
        assert done.index != built.index
        assert clean(opensearch_engine, name, source) == 4

    def test_a_tenth_is_deleted_in_place(self, opensearch_engine, name, corpus):
        built = build(opensearch_engine, corpus(numbered(30)), name, LEXICAL)
        updated = update(opensearch_engine, corpus(numbered(27)), name, LEXICAL, mode=DELETE)
        assert (updated.deleted, updated.index) == (3, built.index)

    def test_a_plan_counts_what_the_update_does(self, opensearch_engine, name, corpus):
        documents = numbered(30)
        build(opensearch_engine, corpus(documents), name, LEXICAL)
        documents[3]["text"] = "changed"
        source = corpus([*documents[1:], {"_id": "fresh", "text": "a new document"}])
        plan = plan_update(opensearch_engine, source, name, LEXICAL, DELETE)
        assert (plan.documents, plan.deletions, plan.allowed, plan.new) == (30, 1, True, False)
        assert clean(opensearch_engine, name) == 30
        updated = update(opensearch_engine, source, name, LEXICAL, mode=DELETE)
        assert updated.counts == plan.counts == ChangeCounts(new=1, changed=1, unchanged=28, gone=1)

    def test_there_must_be_something_to_update(self, opensearch_engine, name, corpus):
        with pytest.raises(UsageError, match="no index"):
            plan_update(opensearch_engine, corpus(numbered(3)), name, LEXICAL)


@pytest.mark.engine
class TestCommand:
    @pytest.fixture
    def command(self, opensearch_engine, name, corpus, tmp_path):
        """The words of a command that would delete 26 of 30 documents."""
        build(opensearch_engine, corpus(numbered(30)), name, LEXICAL)
        corpus(numbered(4))
        models = ["--weights", "none", "--dense", "none", "--url", opensearch_engine.url]
        return ["index", str(tmp_path / "corpus.jsonl"), name, "--update", "--delete-missing", *models]

    def test_the_plan_deletes_nothing(self, opensearch_engine, name, command, capsys):
        before = opensearch_engine.request("GET", f"/{name}/_mapping")
        assert run([*command, "--plan"]) == 0
        shown = capsys.readouterr().out
        assert "delete     26, more than the 10% that may be deleted without --yes" in shown
        assert "where      a copy" in shown
        assert run([*command, "--plan", "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        jsonschema.validate(plan, json.loads(SCHEMA.read_text()))
        assert (plan["deletions"], plan["documents"], plan["allowed"]) == (26, 30, False)
        assert run([each for each in command if each != "--delete-missing"] + ["--plan"]) == 0
        assert "26 no longer in the source; they are kept without --delete-missing" in capsys.readouterr().out
        assert opensearch_engine.request("GET", f"/{name}/_mapping") == before
        assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 30

    def test_without_a_terminal_it_is_refused(self, opensearch_engine, name, command, capsys):
        assert run(command) == 2
        assert "would delete 26 of 30 documents" in capsys.readouterr().err
        assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 30
        assert run([*command, "--yes"]) == 0
        assert "26 deleted" in capsys.readouterr().out
        assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 4

    @pytest.mark.parametrize(("answer", "status", "left"), [("n", 1, 30), ("y", 0, 4), ("\x04", 2, 30)])
    def test_a_terminal_is_asked(self, opensearch_engine, name, command, own_places, answer, status, left):
        master, slave = pty.openpty()
        program = f"import sys; from termweave.cli import run; sys.exit(run({command!r}))"
        places = {"XDG_STATE_HOME": str(own_places / "state"), "PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **places},
        ) as child:
            os.write(master, f"{answer}\n".encode())
            _, err = child.communicate(timeout=120)
        os.close(master)
        os.close(slave)
        assert child.returncode == status, err
        assert f"Delete 26 of the 30 documents of '{name}'?".encode() in err
        assert (b"Add --yes to run the command without questions" in err) == (answer == "\x04")  # Ctrl-D is no answer
        assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == left
