"""Searching from Python on a real server."""

from __future__ import annotations

import pickle

import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.errors import ModelError, UsageError
from termweave.indexer import Options, build
from termweave.search import Reranking

pytestmark = pytest.mark.engine


@pytest.fixture
def index(opensearch_engine, name, tmp_path):
    """Forty documents with all signals."""
    path = tmp_path / "corpus.jsonl"
    subjects = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")
    lines = [
        {"_id": f"{subject}-{number}", "text": f"The {subject} module, part {number}: {subject} functions"}
        for subject in subjects
        for number in range(5)
    ]
    path.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    build(opensearch_engine, corpora.open_source(path), name, Options())
    return tw.connect(opensearch_engine.url).index(name)


@pytest.mark.parametrize("rerank", ["none", "rnn"])
@pytest.mark.parametrize("mode", ["lexical", "weights", "dense", "hybrid", "lexical:1,weights:2,dense:3"])
def test_each_hit_explains_itself_afterwards_as_it_would_have_at_once(index, mode, rerank):
    later = index.search("json functions", mode=mode, rerank=rerank, k=7)
    at_once = index.search("json functions", mode=mode, rerank=rerank, k=7, explain=True)
    assert [hit.id for hit in later] == [hit.id for hit in at_once]
    for hit, same in zip(later, at_once, strict=True):
        assert hit.explanation is None
        assert same.explain() == same.explanation
        # The engine's inner products differ in the last digits from one search to the next.
        assert [part["name"] for part in hit.explain()["parts"]] == [part["name"] for part in same.explain()["parts"]]
        assert hit.explain()["score"] == pytest.approx(same.score, abs=1e-5)
        assert sum(part["share"] for part in hit.explain()["parts"]) == pytest.approx(hit.score, abs=1e-5)


def test_hits_travel_between_processes(index):
    (hit, *_) = index.search("json functions", explain=True)
    assert pickle.loads(pickle.dumps(hit)) == hit
    assert pickle.loads(pickle.dumps(hit)).explain() == hit.explanation


def test_reranking_parameters_are_taken(index):
    plain = index.search("json functions", rerank="none", k=40)
    same = index.search("json functions", rerank="rnn", reranking=Reranking(weight=1.0), k=40)
    assert [hit.id for hit in plain] == [hit.id for hit in same]
    papers = index.search("json functions", rerank="rnn", reranking=Reranking(similarity="dense", candidates=10), k=40)
    assert [hit.score for hit in papers] == sorted((hit.score for hit in papers), reverse=True)


def test_explaining_a_document_gives_the_same_as_finding_it(index):
    for hit in index.search("timer thread", rerank="rnn", k=5, explain=True):
        again = index.explain("timer thread", hit.id, rerank="rnn")
        assert (again.id, again.rank) == (hit.id, hit.rank)
        assert again.score == pytest.approx(hit.score, abs=1e-5)


def test_what_the_index_has_not_is_said(index):
    with pytest.raises(UsageError, match="no signal 'magic'"):
        index.search("x", mode="magic")
    with pytest.raises(UsageError, match="no reranker"):
        index.search("x", rerank="magic")
    with pytest.raises(UsageError, match="no document 'nothing'"):
        index.explain("x", "nothing")


def test_a_model_of_another_hash_is_refused(index, opensearch_engine, name):
    generation = index.generation
    meta = opensearch_engine.request("GET", f"/{generation}/_mapping")[generation]["mappings"]["_meta"]
    meta["termweave"]["models"]["weights"]["hash"] = "0123456789abcdef"
    opensearch_engine.request("PUT", f"/{generation}/_mapping", body={"_meta": meta})
    with pytest.raises(ModelError, match="0123456789abcdef"):
        tw.connect(opensearch_engine.url).index(name)


def test_an_open_index_follows_its_alias_to_other_signals(opensearch_engine, name, tmp_path, index):
    assert index.search("json", mode="weights")
    path = tmp_path / "other.jsonl"
    path.write_text('{"_id": "only", "text": "json text"}\n')
    build(opensearch_engine, corpora.open_source(path), name, Options(weights="none", dense="none"))
    with pytest.raises(UsageError, match="no signal 'weights'"):
        index.search("json", mode="weights")
    assert [hit.id for hit in index.search("json", mode="lexical")] == ["only"]


def test_pages_hold_every_hit_once_with_the_score_of_a_long_list(index):
    whole = index.search("json thread functions", k=40, candidates=10)
    pages = [hit for start in range(0, 40, 7) for hit in index.search("json thread functions", k=7, start=start, candidates=10)]
    assert [hit.id for hit in pages] == [hit.id for hit in whole]
    for hit, same in zip(pages, whole, strict=True):
        assert hit.score == pytest.approx(same.score, abs=1e-5)


@pytest.mark.parametrize("mode", ["lexical", "weights"])
def test_long_queries_leave_room_for_filters_and_explanations(index, mode):
    words = "json functions " + " ".join(f"word{number}" for number in range(1500))
    answer = index.answer(words, mode=mode, where=[{"terms": {"metadata.kind": ["a", "b"]}}], explain=True)
    assert answer.hits == []
    answer = index.answer(words, mode=mode, explain=True)
    assert answer.dropped
    for hit in answer.hits:
        (part,) = hit.explanation["parts"]
        assert sum(term["share"] for term in part["terms"]) == pytest.approx(hit.score, rel=1e-5)


def test_equal_scores_are_cut_off_by_id(opensearch_engine, name, tmp_path):
    path = tmp_path / "equal.jsonl"
    path.write_bytes(
        b"\n".join(orjson.dumps({"_id": f"t{number:04}", "text": "the same words"}) for number in reversed(range(400)))
    )
    build(opensearch_engine, corpora.open_source(path), name, Options(dense="none"))
    index = tw.connect(opensearch_engine.url).index(name)
    for mode in ("lexical", "weights"):
        assert [hit.id for hit in index.search("words", mode=mode, k=100)] == [f"t{number:04}" for number in range(100)]


def test_models_switched_off_by_hand_are_a_sentence(opensearch_engine, name, index):
    with pytest.raises(ModelError, match="needs its weights model"):
        tw.connect(opensearch_engine.url).index(name, weights="none")
