"""What earlier versions stored is read by this one: indices with statistics and ledgers, a model's manifest, a settings file; and snapshots.

`tests/fixtures/VERSION/` was made by `tests/fixtures/stored_indices.py` of that version. A file there never changes: if this test
fails, users' indices cannot be read any more either.
"""

import json
import shutil
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from termweave import corpora
from termweave.catalog import generations
from termweave.catalog.profiles import Profile
from termweave.catalog.statistics_store import companion
from termweave.cli import run
from termweave.encoders.manifest import Manifest
from termweave.engine import connect
from termweave.engine.embedded import folders
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations import listing, publication
from termweave.indexer.ledger import storage
from termweave.search import Index
from termweave.settings import load
from tests.fixtures.stored_indices import INDICES, NAME, QUERIES, answers, documents
from tests.indexer.builds import check, clean, write
from tests.indexer.conftest import own_node, write_lines

FIXTURES = Path(__file__).parents[1] / "fixtures"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir() and (path / "documents.jsonl").exists())
#: Scores may differ in the last digits from one release of ONNX Runtime to the next. The documents of 0.1.0's learned index, and its
#: answers, were encoded before the shipped model was quantised again; fusion then stretches what differs between close candidates.
LEXICAL, LEARNED = {"rel": 1e-3}, {"rel": 0.06, "abs": 0.03}


def restore(engine, kept, name):
    """Store an index, its statistics and its ledger as a version had them, under another name of the alias."""
    kept = json.loads(json.dumps(kept).replace(NAME, name))
    put(engine, kept["index"], kept["stored"], {name: {}})
    if kept["statistics"]:
        put(engine, companion(kept["index"]), kept["statistics"], {})
    path = storage.folder(engine) / f"{kept['index']}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as database:
        database.executescript("\n".join(kept["ledger"]))
    return kept["index"]


def put(engine, index, stored, aliases):
    body = {"settings": {"index": stored["settings"]}, "mappings": stored["mappings"], "aliases": aliases}
    engine.request("PUT", f"/{index}", body=body)
    write(engine, index, stored["documents"])


@pytest.fixture(params=[(version, kind) for version in VERSIONS for kind in INDICES], ids="-".join)
def restored(request, opensearch_engine, name):
    """A version's index: its documents, its name, what it answered, and its options."""
    version, kind = request.param
    kept = json.loads((FIXTURES / version / f"{kind}.json").read_text(encoding="utf-8"))
    index = restore(opensearch_engine, kept, name)
    return FIXTURES / version / "documents.jsonl", index, kept["answers"], INDICES[kind]


def test_an_index_is_searched_with_the_same_answers(restored, opensearch_engine, name):
    _, index, expected, _ = restored
    opened = Index.open(opensearch_engine, name)
    assert opened.generation == index
    close = LEARNED if opened.lineage.models else LEXICAL
    for mode, by_query in answers(opened).items():
        for query in QUERIES:
            stored, scores = dict(expected[mode][query]), dict(by_query[query])
            assert scores == {document: pytest.approx(score, **close) for document, score in stored.items()}, (mode, query)
            in_order = [stored[document] for document in scores]  # near ties may change places
            assert in_order == pytest.approx(sorted(in_order, reverse=True), **close), (mode, query)
    assert opened.search("copper", k=1)[0].explain()["parts"]


def test_an_index_is_verified_and_updated_and_what_did_not_change_is_not_sent(restored, opensearch_engine, name, tmp_path):
    source, index, _, options = restored
    assert check(opensearch_engine, name).ok
    clean(opensearch_engine, name, corpora.open_source(source))
    lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    changed = [*({**lines[0], "text": "Tea is a drink."}, *lines[1:-1]), {"_id": "new", "text": "A document about lamps."}]
    newer = write_lines(tmp_path / "newer.jsonl", changed)
    mode = UpdateMode(delete_missing=True, allow_deletions=1)
    counts = update(opensearch_engine, corpora.open_source(newer), name, options, mode=mode).counts
    assert (counts.new, counts.changed, counts.gone) == (1, 1, 1)
    clean(opensearch_engine, name, corpora.open_source(newer))
    assert Index.open(opensearch_engine, name).search("lamps", k=1)[0].id == "new"
    assert generations.live(opensearch_engine, name) == index


def test_a_build_takes_the_place_of_an_index_and_back(restored, opensearch_engine, name, capsys):
    source, index, _, options = restored
    newer = build(opensearch_engine, corpora.open_source(source), name, options).index
    assert generations.live(opensearch_engine, name) == newer != index
    assert Index.open(opensearch_engine, name).lineage.profile == "mine"  # the build keeps the tuned profile
    assert publication.previous(opensearch_engine, name) == index
    assert run(["rollback", name, "--url", opensearch_engine.url]) == 0, capsys.readouterr().err
    assert generations.live(opensearch_engine, name) == index


@pytest.mark.parametrize("version", VERSIONS)
def test_a_manifest_and_a_settings_file_are_read(version, monkeypatch):
    assert "0.1.0" in VERSIONS
    path = FIXTURES / version / "termweave.json"
    manifest = Manifest.from_bytes(path.read_bytes(), path)
    assert (manifest.kind, manifest.outputs, manifest.runtime) == ("anchored", ("weights", "dense"), "onnx")
    monkeypatch.chdir(FIXTURES / version)
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    settings = load()
    assert (settings.url, settings.user, settings.timeout) == ("https://search.example.org:9200", "jane", 30)


@contextmanager
def cluster(folder):
    """A cluster of its own that may use the folder of snapshots."""
    with own_node(f"path.repo: ['{folder}']\n") as state, connect(load(url=state.url)) as engine:
        engine.request("PUT", "/_snapshot/backup", body={"type": "fs", "settings": {"location": str(folder)}})
        yield engine


DOCS = "docs"


def snapshot(engine, method, path=""):
    """Make a snapshot or restore it; returns its indices."""
    body = {"indices": f"{DOCS}-*", "include_global_state": False}
    answer = engine.request(method, f"/_snapshot/backup/one{path}", params={"wait_for_completion": True}, body=body)["snapshot"]
    assert answer["shards"]["failed"] == 0
    return sorted(answer["indices"])


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.nightly
def test_a_snapshot_is_restored_in_another_cluster(corpus, tmp_path, monkeypatch, capsys, request):
    """What a user has after restoring: everything but the ledger, which is a file of the host that built the index."""
    changed = [*documents()[1:], {"_id": "new", "text": "A document about lamps."}]
    folder = Path(tempfile.mkdtemp(prefix="termweave-snapshots-"))  # not in tmp_path: the server's user must come through
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
    folders.make_private(folder)
    with cluster(folder) as engine:
        older = build(engine, corpus(documents()), DOCS, BuildOptions()).index
        opened = Index.open(engine, DOCS)
        opened.adopt(Profile("mine", dict.fromkeys(opened.signals, 1 / len(opened.signals)), "rrf", {"candidates": 10}))
        mode = UpdateMode(new=True, delete_missing=True, allow_deletions=1)
        index = update(engine, corpus(changed, name="changed.jsonl"), DOCS, BuildOptions(), mode=mode).index
        expected = answers(Index.open(engine, DOCS))
        assert all(expected["hybrid"][query] for query in QUERIES)
        assert snapshot(engine, "PUT") == sorted([older, f"{older}.stats", index, f"{index}.stats"])

    with cluster(folder) as engine:
        monkeypatch.setattr("termweave.support.paths.state", lambda: tmp_path / "state of another host")
        monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache of another host")
        snapshot(engine, "POST", "/_restore")
        assert [each.index for each in listing.list_generations(engine, DOCS)] == [index, older]
        restored = Index.open(engine, DOCS)
        assert (restored.generation, restored.lineage.profile, answers(restored)) == (index, "mine", expected)
        assert run(["verify", DOCS, "--url", engine.url]) == 2
        assert "Compare with the source instead: 'termweave verify NAME SOURCE'" in capsys.readouterr().err
        assert run(["verify", DOCS, str(tmp_path / "changed.jsonl"), "--deep", "--url", engine.url]) == 0
        counts = update(engine, corpus(documents(), name="again.jsonl"), DOCS, BuildOptions()).counts
        assert (counts.new, counts.changed) == (1, 0)  # the digests came along: nothing else is sent
        assert run(["rollback", DOCS, "--url", engine.url]) == 0
        assert generations.live(engine, DOCS) == older
