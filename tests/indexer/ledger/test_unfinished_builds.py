"""Builds that were stopped, on a real OpenSearch: what they leave, who goes on, what must not be touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from termweave import corpora
from termweave.catalog.generations import find_live, live
from termweave.errors import EngineError, UsageError
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import publication
from termweave.indexer.generations.listing import list_generations
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage
from termweave.indexer.stored_documents import LiveDocuments
from termweave.learning.preparation import LearningTask, prepare
from termweave.search import Index
from tests.indexer.builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine

CHILD = """
import sys
from termweave import corpora, engine, settings
from termweave.support import paths
from termweave.indexer import BuildOptions, build
from termweave.indexer.pipeline import bulk_sender
from pathlib import Path
paths.state = lambda: Path({state!r})
quick = bulk_sender.BulkSender._request
def slow(self, batch):
    import time; time.sleep(0.05)
    return quick(self, batch)
bulk_sender.BulkSender._request = slow
from termweave.indexer.preparation import corpus_pass
corpus_pass._BLOCK_DOCUMENTS = 50
def progress(stage, done, *_):
    print(stage, done, flush=True)
server = engine.connect(settings.load(url={url!r}))
build(server, corpora.open_source({path!r}), {name!r}, BuildOptions(weights="none", dense="none"), progress)
"""


@pytest.mark.parametrize("kill_at", [0, 300, 1400])
def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_twice(
    opensearch_engine, name, corpus, own_places, tmp_path, kill_at
):
    corpus(numbered(1500))
    path = str(tmp_path / "corpus.jsonl")
    program = CHILD.format(state=str(own_places / "state"), url=opensearch_engine.url, path=path, name=name)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    for line in child.stdout:
        stage, _, done = line.strip().partition(" ")
        if stage == "Indexing" and int(done) >= kill_at:
            child.send_signal(signal.SIGKILL)
            break
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert live(opensearch_engine, name) is None  # half a generation is never live
    built = build(opensearch_engine, corpora.open_source(path), name, LEXICAL)
    assert built.documents == 1500
    assert built.sent <= 1500 - max(0, kill_at - 250)
    assert any("Resumed" in note for note in built.notes)
    assert check(opensearch_engine, name).ok
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 1500


def test_an_unfinished_generation_of_another_source_is_named_until_fresh(opensearch_engine, name, corpus, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Job, "_verify", stop)
    with pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="None of its generations is published"):
        Index.open(opensearch_engine, name)
    other = corpus(numbered(12), name="other.jsonl")
    with pytest.raises(
        UsageError, match=r"unfinished generation.*: source was corpus.jsonl \(.*\) and is other.jsonl \(.{8}\)\."
    ):
        build(opensearch_engine, other, name, LEXICAL)
    same = corpus(numbered(10))
    for setting, said in (
        ({"shards": 2}, "shards was 1 and is 2"),
        ({"analyzer": "german"}, "analyzer was english and is german"),
        ({"dense": None}, "signals was lexical and is dense,lexical; dense was none and is .*"),
        ({"skip_bad": True}, "skip_bad, what keep_mapping takes over, or the version of termweave"),
        ({"settings": {"index.codec": "default"}}, 'settings was none and is {"index.codec":"default"}'),
    ):
        with pytest.raises(UsageError, match=rf"with another source, model or setting: {said}"):
            build(opensearch_engine, same, name, replace(LEXICAL, **setting))
    fresh = build(opensearch_engine, other, name, BuildOptions(weights="none", dense="none", fresh=True))
    assert fresh.documents == 12
    assert len(opensearch_engine.request("GET", f"/{name}-*/_alias")) == 1  # the unfinished one is gone


def test_a_trial_that_was_stopped_blocks_no_build(opensearch_engine, name, corpus, monkeypatch):
    """`learn` builds from the live documents; whoever stops it has no command that would finish the trial generation."""
    build(opensearch_engine, corpus(numbered(4)), name, LEXICAL)
    trial = LiveDocuments(opensearch_engine, find_live(opensearch_engine, name))

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Job, "_verify", stop)
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, trial, name, LEXICAL)
    prepared = LearningTask(name, "no-such-questions", minutes=1)
    with pytest.raises(UsageError, match="no-such-questions"):  # `learn` goes on with it
        prepare(opensearch_engine, prepared)
    (stopped,) = [each.index for each in list_generations(opensearch_engine, name) if not each.complete]
    assert build(opensearch_engine, corpus(numbered(5)), name, replace(LEXICAL, fresh=True)).documents == 5
    kept = [each.index for each in list_generations(opensearch_engine, name)]
    assert (len(kept), stopped in kept) == (3, True)  # hours of `learn` are not deleted on the way
    assert (
        build(opensearch_engine, LiveDocuments(opensearch_engine, find_live(opensearch_engine, name)), name, LEXICAL).documents
        == 5
    )
    assert stopped not in [each.index for each in list_generations(opensearch_engine, name)]  # it has other documents
    with monkeypatch.context() as patched:
        patched.setattr(Job, "_verify", stop)
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, corpus(numbered(6)), name, LEXICAL)
    with pytest.raises(UsageError, match="has an unfinished generation"):  # before anything is trained
        prepare(opensearch_engine, prepared)


def test_a_generation_that_was_whole_but_not_yet_published_is_published(opensearch_engine, name, corpus, monkeypatch):
    def dies(*_, **__):
        raise KeyboardInterrupt

    source = corpus(numbered(10))
    monkeypatch.setattr(publication, "publish", dies)
    with pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, source, name, LEXICAL)
    monkeypatch.undo()
    built = build(opensearch_engine, source, name, LEXICAL)
    assert (built.documents, built.sent) == (10, 0)
    assert live(opensearch_engine, name) == built.index


def test_a_generation_published_but_not_marked_so_is_never_thrown_away(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(4)), name, LEXICAL)
    with storage.existing(opensearch_engine, built.index) as ledger:
        ledger.put("state", "building")  # killed between the swap and the note of it
    other = build(
        opensearch_engine, corpus(numbered(5), name="other.jsonl"), name, BuildOptions(weights="none", dense="none", fresh=True)
    )
    assert opensearch_engine.request("GET", f"/{built.index}/_count")["count"] == 4
    assert live(opensearch_engine, name) == other.index


def test_a_build_that_died_surveying_leaves_nothing_behind(opensearch_engine, name, corpus):
    index = f"{name}-20200101000000-dead"
    with storage.open_(opensearch_engine, index) as ledger:
        ledger.put("name", name)
        ledger.put("state", "surveying")
    opensearch_engine.request("PUT", f"/{index}")
    opensearch_engine.request("PUT", f"/{index}.stats")
    build(opensearch_engine, corpus(numbered(2)), name, LEXICAL)
    left = list(opensearch_engine.request("GET", f"/{name}-*/_alias"))
    assert index not in left
    assert f"{index}.stats" not in left
    assert not (storage.folder(opensearch_engine) / f"{index}.sqlite").exists()


def test_an_index_deleted_while_it_is_built_is_neither_made_again_nor_published(
    opensearch_engine, name, corpus, deleted_meanwhile
):
    with pytest.raises(EngineError, match="was deleted while it was being built"):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    assert not [index for index in opensearch_engine.request("GET", f"/{name}-*/_alias") if not index.endswith(".stats")]
    deleted_meanwhile.undo()
    assert build(opensearch_engine, corpus(numbered(10)), name, LEXICAL).documents == 10
