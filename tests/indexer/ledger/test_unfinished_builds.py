"""Builds that were stopped, on a real OpenSearch: what they leave, who goes on, what must not be touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave.catalog.generations import find_live
from termweave.errors import EngineError, UsageError
from termweave.indexer.generations import publication
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.stored_documents import LiveDocuments
from termweave.learning.preparation import LearningTask, prepare
from termweave.search import Index
from tests.indexer.builds import LEXICAL
from tests.indexer.conftest import stopping

pytestmark = pytest.mark.engine


def stopped(desk, source, options=LEXICAL):
    """A build that is stopped when all documents were sent."""
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        desk.build(source, options)


def test_an_unfinished_generation_of_another_source_is_named_until_fresh(desk):
    stopped(desk, 10)
    with pytest.raises(UsageError, match="None of its generations is published"):
        Index.open(desk.engine, desk.name)
    other = desk.source(12, name="other.jsonl")
    begun = r"unfinished generation.*: source was corpus.jsonl \(.*\) and is other.jsonl \(.{8}\)\."
    with pytest.raises(UsageError, match=begun):
        desk.build(other)
    same = desk.source(10)
    for setting, said in (
        ({"shards": 2}, "shards was 1 and is 2"),
        ({"dense": None}, "signals was lexical and is dense,lexical; dense was none and is .*"),
        ({"skip_bad": True}, "skip_bad, what keep_mapping takes over, or the version of termweave"),
    ):
        with pytest.raises(UsageError, match=rf"with another source, model or setting: {said}"):
            desk.build(same, replace(LEXICAL, **setting))
    assert desk.build(other, replace(LEXICAL, fresh=True)).documents == 12
    assert len(desk.engine.request("GET", f"/{desk.name}-*/_alias")) == 1  # the unfinished one is gone


def test_a_trial_that_was_stopped_blocks_no_build(desk):
    """`learn` builds from the live documents; whoever stops it has no command that would finish the trial generation."""

    def trial():
        return LiveDocuments(desk.engine, find_live(desk.engine, desk.name))

    desk.build(4)
    stopped(desk, trial())
    task = LearningTask(desk.name, "no-such-questions", minutes=1)
    with pytest.raises(UsageError, match="no-such-questions"):  # `learn` goes on with it
        prepare(desk.engine, task)
    (unfinished,) = [each.index for each in desk.generations if not each.complete]
    assert desk.build(5, replace(LEXICAL, fresh=True)).documents == 5
    indices = [each.index for each in desk.generations]
    assert (len(indices), unfinished in indices) == (3, True)  # hours of `learn` are not deleted on the way
    assert desk.build(trial()).documents == 5
    assert unfinished not in [each.index for each in desk.generations]  # it has other documents
    stopped(desk, 6)
    with pytest.raises(UsageError, match="has an unfinished generation"):  # before anything is trained
        prepare(desk.engine, task)


def test_a_generation_that_was_whole_but_not_yet_published_is_published(desk):
    with stopping(publication, "publish"), pytest.raises(KeyboardInterrupt):
        desk.build(10)
    built = desk.build(10)
    assert (built.documents, built.sent, built.index) == (10, 0, desk.live)


def test_a_generation_published_but_not_marked_so_is_never_thrown_away(desk):
    built = desk.build(4)
    with storage.existing(desk.engine, built.index) as ledger:
        ledger.put("state", "building")  # killed between the swap and the note of it
    other = desk.build(desk.source(5, name="other.jsonl"), replace(LEXICAL, fresh=True))
    assert desk.engine.request("GET", f"/{built.index}/_count")["count"] == 4
    assert desk.live == other.index


def test_a_build_that_died_surveying_leaves_nothing_behind(desk):
    index = f"{desk.name}-20200101000000-dead"
    with storage.open_(desk.engine, index) as ledger:
        ledger.put("name", desk.name)
        ledger.put("state", "surveying")
    for each in (index, f"{index}.stats"):
        desk.engine.request("PUT", f"/{each}")
    desk.build(2)
    assert not {index, f"{index}.stats"} & {*desk.engine.request("GET", f"/{desk.name}-*/_alias")}
    assert not (storage.folder(desk.engine) / f"{index}.sqlite").exists()


def test_an_index_deleted_while_it_is_built_is_neither_made_again_nor_published(desk, monkeypatch):
    run = Pipeline.run

    def meddle(pipeline, progress):
        pipeline.engine.request("DELETE", f"/{pipeline.target.index}")
        return run(pipeline, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "run", meddle)
        with pytest.raises(EngineError, match="was deleted while it was being built"):
            desk.build(10)
    assert desk.live is None
    assert not [index for index in desk.engine.request("GET", f"/{desk.name}-*/_alias") if not index.endswith(".stats")]
    assert desk.build(10).documents == 10
