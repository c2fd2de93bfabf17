"""An index that is built of shards is the index that is built of their corpus."""

from __future__ import annotations

from dataclasses import replace

import pytest

from termweave import corpora
from termweave.catalog import statistics_store
from termweave.cli import run
from termweave.contracts.signal import Pruning
from termweave.indexer import BuildOptions, build, update, verify_against_source
from termweave.indexer.job import Job
from termweave.indexer.options import Window
from termweave.search import Index
from tests.indexer.builds import check

from .conftest import texts

BM25 = {"weights": "bm25-german", "dense": "none"}


def stored(engine, name):
    """id -> `_source` of all documents."""
    engine.request("POST", f"/{name}/_refresh")
    hits = engine.request("POST", f"/{name}/_search", body={"size": 5_000})["hits"]["hits"]
    return {hit["_id"]: hit["_source"] for hit in hits}


def same(engine, direct, of_shards, queries):
    """Lineage, statistics, stored documents and scores are the same; the options of a build from shards name no models."""
    indices = [Index.open(engine, name) for name in (direct, of_shards)]
    made = [replace(index.lineage, name="", created="", source={**index.lineage.source, "options": ""}) for index in indices]
    options = [{name: value for name, value in index.lineage.options.items() if name not in BM25} for index in indices]
    assert options[0] == options[1]
    assert made[0] == made[1]
    if made[0].statistics:
        first, second = (statistics_store.load(engine, index.generation, index.lineage).to_bytes() for index in indices)
        assert first == second
    assert stored(engine, direct) == stored(engine, of_shards)
    first, second = (index.run(queries, k=1_000).scores for index in indices)
    assert any(first.values())
    assert second == {
        query: pytest.approx(scores, rel=1e-5) for query, scores in first.items()
    }  # compiled code adds in another order


QUERIES = {"a": "haus im garten", "b": "wolke regen", "c": "stern"}


def test_same_documents_and_scores_with_the_shipped_model(opensearch_engine, name, write, encode, tmp_path):
    documents = [
        {
            "_id": f"d{number}",
            "text": f"The kettle number {number} is cleaned with vinegar, tea is made at {number} degrees.",
            "n": number,
        }
        for number in range(40)
    ]
    path = write(documents)
    encode(path, tmp_path / "shards", quick=False)
    build(opensearch_engine, corpora.open_source(path), f"{name}-a", BuildOptions())
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", BuildOptions())
    assert (built.documents, built.sent) == (40, 40)
    same(opensearch_engine, f"{name}-a", f"{name}-b", {"q": "clean a kettle", "r": "tea at 17 degrees"})
    assert check(opensearch_engine, f"{name}-b").ok


def test_same_with_passages_duplicates_long_texts_and_metadata(opensearch_engine, name, write, encode, tmp_path):
    """Two thousand texts, of which the sample takes some, are longer than the sample keeps."""
    documents = texts(600)
    for number in range(0, 600, 7):
        documents[number]["text"] = " ".join(f"wort{number}x{each} {documents[number]['text']}" for each in range(150))
    documents[400] = documents[3]
    documents[10]["text"] = ""
    path = write(documents)
    encode(path, tmp_path / "shards")
    options = BuildOptions(**BM25)
    build(opensearch_engine, corpora.open_source(path), f"{name}-a", options)
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", BuildOptions())
    assert "1 document left out, with the id and content of an earlier document." in built.notes
    same(opensearch_engine, f"{name}-a", f"{name}-b", QUERIES)
    found = verify_against_source(
        opensearch_engine, Index.open(opensearch_engine, f"{name}-a").generation, corpora.open_source(tmp_path / "shards")
    )
    assert found.ok


def test_same_passages(opensearch_engine, name, write, encode, tmp_path):
    documents = texts(60)
    documents[7]["text"] = ". ".join(each["text"].capitalize() for each in documents[:20]) + "."
    path = write(documents)
    encode(path, tmp_path / "shards", "--passage-size", "50")
    build(opensearch_engine, corpora.open_source(path), f"{name}-a", BuildOptions(**BM25, passages=Window(50, 37)))
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", BuildOptions())
    assert built.passages > built.documents == 60
    same(opensearch_engine, f"{name}-a", f"{name}-b", QUERIES)
    shards = corpora.open_source(tmp_path / "shards")
    assert verify_against_source(opensearch_engine, Index.open(opensearch_engine, f"{name}-a").generation, shards).ok
    with pytest.raises(Exception, match="was encoded as passages of 50 words, and passages asks for others"):
        build(opensearch_engine, shards, f"{name}-c", BuildOptions(passages=Window(60, 40)))


def test_same_with_pruning(opensearch_engine, name, write, encode, tmp_path):
    documents = [{"_id": f"d{number}", "text": f"Green tea number {number} steeps for {number} minutes."} for number in range(12)]
    path = write(documents)
    encode(path, tmp_path / "shards", quick=False)
    options = BuildOptions(analyzer="standard", prune=Pruning(below=0.3))
    build(opensearch_engine, corpora.open_source(path), f"{name}-a", options)
    build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", options)
    same(opensearch_engine, f"{name}-a", f"{name}-b", {"q": "green tea", "r": "minutes 7"})


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


def test_models_that_were_not_asked_for_are_refused(opensearch_engine, name, write, encode, tmp_path):
    encode(write(texts(10)), tmp_path / "shards")
    shards = corpora.open_source(tmp_path / "shards")
    with pytest.raises(Exception, match=r"was encoded with 'bm25-german' .*weights names 'bm25-dutch'"):
        build(opensearch_engine, shards, name, BuildOptions(weights="bm25-dutch"))
    with pytest.raises(Exception, match="was encoded without such a model, and dense names"):
        build(opensearch_engine, shards, name, BuildOptions(dense="shipped"))
    with pytest.raises(Exception, match="'dense' cannot be built: no model gives 'dense'"):
        build(opensearch_engine, shards, name, BuildOptions(signals=("dense",)))
    built = build(opensearch_engine, shards, name, BuildOptions(weights="none", signals=("lexical",)))
    assert built.signals == ("lexical",)
    with pytest.raises(Exception, match="is encoded already, and an update weighs documents with the statistics"):
        update(opensearch_engine, shards, name, BuildOptions())


def test_a_plan_of_shards_is_refused(opensearch_engine, name, write, encode, tmp_path, capsys):
    encode(write(texts(10)), tmp_path / "shards")
    assert run(["index", str(tmp_path / "shards"), name, "--plan", "--url", opensearch_engine.url]) == 2
    assert "a plan estimates how long a corpus is encoded, which is done here" in capsys.readouterr().err
