"""An index that is built of shards is the index that is built of their corpus."""

from dataclasses import replace

import pytest

from termweave import corpora
from termweave.catalog import statistics_store
from termweave.cli import run
from termweave.contracts.signal import Pruning
from termweave.errors import TermweaveError, UsageError
from termweave.indexer import BuildOptions, build, update, verify_against_source
from termweave.indexer.job import Job
from termweave.indexer.options import Window
from termweave.search import Index
from tests.indexer.builds import check, sources

from .conftest import texts

BM25 = {"weights": "bm25-german", "dense": "none"}


@pytest.fixture
def same(opensearch_engine, name, encode, tmp_path):
    """A function that builds the indices NAME-a of a corpus and NAME-b of its shards, compares all of them, and returns the build of shards."""

    def check_same(path, options, queries, *words, quick=True, of_shards=None):
        encode(path, tmp_path / "shards", *words, quick=quick)
        build(opensearch_engine, corpora.open_source(path), f"{name}-a", options)
        built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", of_shards or BuildOptions())
        direct, shards = (Index.open(opensearch_engine, f"{name}-{each}") for each in "ab")
        origin = {**direct.lineage.source, "options": shards.lineage.source["options"]}  # those of shards name no models
        assert replace(direct.lineage, name=f"{name}-b", created=shards.lineage.created, source=origin) == shards.lineage
        if direct.lineage.statistics:
            first, second = (statistics_store.load(opensearch_engine, each.generation, each.lineage) for each in (direct, shards))
            assert first.to_bytes() == second.to_bytes()
        assert sources(opensearch_engine, f"{name}-a") == sources(opensearch_engine, f"{name}-b")
        first, second = (each.run(queries, k=1_000).scores for each in (direct, shards))
        assert any(first.values())
        # compiled code adds in another order
        assert second == {query: pytest.approx(scores, rel=1e-5) for query, scores in first.items()}
        source = corpora.open_source(tmp_path / "shards")
        assert verify_against_source(opensearch_engine, direct.generation, source).ok
        assert check(opensearch_engine, f"{name}-b").ok
        return built

    return check_same


QUERIES = {"a": "haus im garten", "b": "wolke regen", "c": "stern"}


def test_same_documents_and_scores_with_the_shipped_model_and_pruning(write, same):
    documents = [
        {"_id": f"d{each}", "text": f"Green tea number {each} steeps for {each} minutes.", "n": each} for each in range(40)
    ]
    options = BuildOptions(analyzer="standard", prune=Pruning(below=0.3))
    built = same(write(documents), options, {"q": "green tea", "r": "minutes 7"}, quick=False, of_shards=options)
    assert (built.documents, built.sent) == (40, 40)


def test_same_with_passages_duplicates_long_texts_and_metadata(write, same):
    """More texts than the sample takes, some of which are longer than it keeps."""
    documents = texts(600)
    for number in range(0, 600, 60):
        documents[number]["text"] = " ".join(f"wort{number}x{each} {documents[number]['text']}" for each in range(150))
    documents[400] = documents[3]
    documents[10]["text"] = ""
    built = same(write(documents), BuildOptions(**BM25), QUERIES)
    assert "1 document left out, with the id and content of an earlier document." in built.notes


def test_same_passages(opensearch_engine, name, write, same, tmp_path):
    documents = texts(60)
    documents[7]["text"] = ". ".join(each["text"].capitalize() for each in documents[:20]) + "."
    built = same(write(documents), BuildOptions(**BM25, passages=Window(50, 37)), QUERIES, "--passage-size", "50")
    assert built.passages > built.documents == 60


def test_a_build_of_the_corpus_is_resumed_from_its_shards(opensearch_engine, name, write, encode, tmp_path, monkeypatch):
    """Both are the same build: what the one has sent, the other does not send again."""
    path = write(texts(80))
    encode(path, tmp_path / "shards")

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Job, "_verify", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, corpora.open_source(path), name, BuildOptions(**BM25))
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert (built.documents, built.sent) == (80, 0)


def test_what_shards_do_not_give_is_refused(opensearch_engine, name, write, encode, tmp_path, capsys):
    encode(write(texts(10)), tmp_path / "shards")
    shards = corpora.open_source(tmp_path / "shards")
    with pytest.raises(UsageError, match="was encoded as whole documents"):
        build(opensearch_engine, shards, name, BuildOptions(passages=Window(60, 40)))
    for options, said in (
        ({"weights": "bm25-dutch"}, r"was encoded with 'bm25-german' .*weights names 'bm25-dutch'"),
        ({"dense": "shipped"}, "was encoded without such a model, and dense names"),
        ({"signals": ("dense",)}, "'dense' cannot be built: no model gives 'dense'"),
    ):
        with pytest.raises(TermweaveError, match=said):
            build(opensearch_engine, shards, name, BuildOptions(**options))
    build(opensearch_engine, shards, name, BuildOptions(weights="none", signals=("lexical",)))
    with pytest.raises(TermweaveError, match="is encoded already, and an update weighs documents with the statistics"):
        update(opensearch_engine, shards, name, BuildOptions())
    assert run(["index", str(tmp_path / "shards"), name, "--plan", "--url", opensearch_engine.url]) == 2
    assert "a plan estimates how long encoding takes" in capsys.readouterr().err
