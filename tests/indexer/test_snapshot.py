"""Snapshot and restore of a generation: in the same cluster after `delete`, and in another cluster with another state folder."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from termweave.catalog import generations
from termweave.catalog.profiles import Profile
from termweave.cli import run
from termweave.engine import connect
from termweave.engine.embedded import folders
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations import listing
from termweave.indexer.ledger import storage
from termweave.search import Index
from termweave.settings import load
from tests.fixtures.stored_indices import QUERIES, answers, documents

from .conftest import own_node

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]
NAME = "docs"


@pytest.fixture
def repository():
    """A folder for snapshots that the server's user may write to."""
    folder = Path(tempfile.mkdtemp(prefix="termweave-snapshots-"))
    folders.make_private(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster(repository):
    """A cluster of its own that may use the folder; the repository is registered."""
    with own_node(f"path.repo: ['{repository}']\n") as state, connect(load(url=state.url)) as engine:
        body = {"type": "fs", "settings": {"location": str(repository)}}
        engine.request("PUT", "/_snapshot/backup", body=body)
        yield engine


def snapshot(engine, method, path=""):
    """Make a snapshot or restore it; returns its indices."""
    body = {"indices": f"{NAME}-*", "include_global_state": False}
    answer = engine.request(method, f"/_snapshot/backup/one{path}", params={"wait_for_completion": True}, body=body)["snapshot"]
    assert answer["shards"]["failed"] == 0
    return sorted(answer["indices"])


def verify(engine, *source):
    return run(["verify", NAME, *map(str, source), "--deep", "--url", engine.url])


def check_restored(engine, source, ledger, index, expected, capsys):
    """What a user has after restoring: everything but the ledger, which is a file of the host that built the index."""
    snapshot(engine, "POST", "/_restore")
    assert generations.live(engine, NAME) == index
    assert answers(Index.open(engine, NAME)) == expected
    assert verify(engine) == 2
    assert "Compare with the source instead: 'termweave verify NAME SOURCE'" in capsys.readouterr().err
    assert verify(engine, source) == 0
    storage.folder(engine).mkdir(parents=True, exist_ok=True)
    shutil.copy(ledger, storage.folder(engine) / f"{index}.sqlite")
    assert verify(engine) == 0


def test_a_snapshot_is_restored_after_a_deletion_and_in_another_cluster(repository, corpus, tmp_path, monkeypatch, capsys):
    changed = [*documents()[1:], {"_id": "new", "text": "A document about lamps."}]
    with cluster(repository) as engine:
        older = build(engine, corpus(documents()), NAME, BuildOptions()).index
        opened = Index.open(engine, NAME)
        opened.adopt(Profile("mine", dict.fromkeys(opened.signals, 1 / len(opened.signals)), "rrf", {"candidates": 10}))
        mode = UpdateMode(new=True, delete_missing=True, allow_deletions=1)
        index = update(engine, corpus(changed, name="changed.jsonl"), NAME, BuildOptions(), mode=mode).index
        expected = answers(Index.open(engine, NAME))
        assert all(expected["hybrid"][query] for query in QUERIES)
        ledger = shutil.copy(storage.folder(engine) / f"{index}.sqlite", tmp_path / "kept.sqlite")
        assert snapshot(engine, "PUT") == sorted([older, f"{older}.stats", index, f"{index}.stats"])
        assert run(["delete", NAME, "--yes", "--url", engine.url]) == 0
        capsys.readouterr()
        check_restored(engine, tmp_path / "changed.jsonl", ledger, index, expected, capsys)
        assert [each.index for each in listing.list_generations(engine, NAME)] == [index, older]
        assert Index.open(engine, NAME).lineage.profile == "mine"

    with cluster(repository) as engine:
        monkeypatch.setattr("termweave.support.paths.state", lambda: tmp_path / "state of another host")
        monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache of another host")
        check_restored(engine, tmp_path / "changed.jsonl", ledger, index, expected, capsys)
        counts = update(engine, corpus(documents(), name="again.jsonl"), NAME, BuildOptions()).counts
        assert (counts.new, counts.changed) == (1, 0)  # the digests came along: nothing else is sent
        assert run(["rollback", NAME, "--url", engine.url]) == 0
        assert generations.live(engine, NAME) == older
