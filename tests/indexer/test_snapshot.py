"""Snapshot and restore of a generation, in another cluster with another state folder."""

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
from termweave.search import Index
from termweave.settings import load
from tests.fixtures.stored_indices import QUERIES, answers, documents

from .conftest import own_node

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]
NAME = "docs"


@pytest.fixture
def cluster():
    """A function that starts a cluster of its own, with a folder of snapshots that all of them share."""
    folder = Path(tempfile.mkdtemp(prefix="termweave-snapshots-"))
    folders.make_private(folder)

    @contextmanager
    def start():
        with own_node(f"path.repo: ['{folder}']\n") as state, connect(load(url=state.url)) as engine:
            engine.request("PUT", "/_snapshot/backup", body={"type": "fs", "settings": {"location": str(folder)}})
            yield engine

    yield start
    shutil.rmtree(folder, ignore_errors=True)


def snapshot(engine, method, path=""):
    """Make a snapshot or restore it; returns its indices."""
    body = {"indices": f"{NAME}-*", "include_global_state": False}
    answer = engine.request(method, f"/_snapshot/backup/one{path}", params={"wait_for_completion": True}, body=body)["snapshot"]
    assert answer["shards"]["failed"] == 0
    return sorted(answer["indices"])


def test_a_snapshot_is_restored_in_another_cluster(cluster, corpus, tmp_path, monkeypatch, capsys):
    """What a user has after restoring: everything but the ledger, which is a file of the host that built the index."""
    changed = [*documents()[1:], {"_id": "new", "text": "A document about lamps."}]
    with cluster() as engine:
        older = build(engine, corpus(documents()), NAME, BuildOptions()).index
        opened = Index.open(engine, NAME)
        opened.adopt(Profile("mine", dict.fromkeys(opened.signals, 1 / len(opened.signals)), "rrf", {"candidates": 10}))
        mode = UpdateMode(new=True, delete_missing=True, allow_deletions=1)
        index = update(engine, corpus(changed, name="changed.jsonl"), NAME, BuildOptions(), mode=mode).index
        expected = answers(Index.open(engine, NAME))
        assert all(expected["hybrid"][query] for query in QUERIES)
        assert snapshot(engine, "PUT") == sorted([older, f"{older}.stats", index, f"{index}.stats"])

    with cluster() as engine:
        monkeypatch.setattr("termweave.support.paths.state", lambda: tmp_path / "state of another host")
        monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache of another host")
        snapshot(engine, "POST", "/_restore")
        assert [each.index for each in listing.list_generations(engine, NAME)] == [index, older]
        restored = Index.open(engine, NAME)
        assert (restored.generation, restored.lineage.profile, answers(restored)) == (index, "mine", expected)
        assert run(["verify", NAME, "--url", engine.url]) == 2
        assert "Compare with the source instead: 'termweave verify NAME SOURCE'" in capsys.readouterr().err
        assert run(["verify", NAME, str(tmp_path / "changed.jsonl"), "--deep", "--url", engine.url]) == 0
        counts = update(engine, corpus(documents(), name="again.jsonl"), NAME, BuildOptions()).counts
        assert (counts.new, counts.changed) == (1, 0)  # the digests came along: nothing else is sent
        assert run(["rollback", NAME, "--url", engine.url]) == 0
        assert generations.live(engine, NAME) == older
