"""Explanations on a real server: every part, every term, every mode; documents that were not found; awkward texts."""

from __future__ import annotations

import uuid

import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import Options, build

pytestmark = pytest.mark.engine
SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue", "ﬁnal café", "你好世界", "👍🏽 party", "שלום")


@pytest.fixture(scope="module")
def index(opensearch_engine, tmp_path_factory):
    """A hundred and forty-four documents, more than a signal returns, with all signals."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    lines = [
        {"_id": f"{row}-{number}", "title": f"{subject} 👍", "text": f"The {subject} module, part {number}: {subject} functions."}
        for row, subject in enumerate(SUBJECTS)
        for number in range(12)
    ]
    path.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    name = f"rerank-explanations-{uuid.uuid4().hex[:10]}"
    build(opensearch_engine, corpora.open_source(path), name, Options())
    yield tw.connect(opensearch_engine.url).index(name)
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.mark.parametrize("rerank", ["none", "rnn"])
@pytest.mark.parametrize("mode", ["lexical", "weights", "dense", "hybrid", "lexical:1,weights:2,dense:3"])
def test_contributions_add_up_for_every_hit(index, mode, rerank):
    for query in ("json functions", "café 你好 👍", "part 7 of the timer"):
        hits = index.search(query, mode=mode, rerank=rerank, k=120, explain=True)
        assert hits
        for hit in hits:
            told = hit.explain()
            assert told["score"] == hit.score
            assert sum(part["share"] for part in told["parts"]) == pytest.approx(hit.score, abs=1e-5)
            for part in told["parts"]:
                if part["name"] == "rnn":
                    mixed = part["weight"] * part["similarity"] + (1 - part["weight"]) * part["jaccard"]
                    assert mixed == pytest.approx(hit.score, abs=1e-5)
                    assert hit.id not in part["neighbours"]
                    continue
                if part["terms"]:  # from stored weights, against what the engine scored
                    assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)
                assert 0 <= part["normalised"] <= 1
                if part["rank"] is None:
                    assert part["share"] == 0
                else:
                    assert part["score"] >= part["lowest"]


def test_words_lie_where_the_terms_stand(index):
    for mode, query, words in [
        ("weights", "café 你好 👍", {"café", "你", "好", "👍"}),
        ("lexical", "café 👍 functions", {"café", "functions", "👍"}),  # Lucene counts in UTF-16
        ("lexical:1,weights:1", "json functions", {"json", "functions"}),
    ]:
        shown = set()
        for hit in index.search(query, mode=mode, k=120, explain=True):
            told = hit.explain()
            assert told["text"] == f"{hit.fields['title']}. {hit.fields['text']}"
            shown |= {told["text"][each["start"] : each["end"]] for each in told["words"]}
            assert all(each["share"] >= 0 for each in told["words"])
        assert shown == words


def test_a_document_that_was_not_found_says_what_it_would_take(index):
    query = "the timer module"
    found = {hit.id for hit in index.search(query, mode="dense", k=100)}
    missing = next(f"{row}-{number}" for row in range(len(SUBJECTS)) for number in range(12) if f"{row}-{number}" not in found)
    alone = index.explain(query, missing, mode="dense")
    (part,) = alone.explain()["parts"]
    assert alone.rank == 0
    assert part["rank"] is None
    assert alone.score == part["score"] == part["share"] == alone.signals["dense"].score
    assert part["score"] <= part["lowest"] + 1e-6
    # Asked for more candidates, the search gives it that very score.
    deep = {hit.id: hit.score for hit in index.search(query, mode="dense", k=144, candidates=144)}
    assert deep[missing] == pytest.approx(part["score"], abs=1e-5)
    fused = index.explain(query, missing, mode="hybrid", rerank="rnn")
    assert sum(each["share"] for each in fused.explain()["parts"]) == pytest.approx(fused.score, abs=1e-5)
    silent = index.explain("timer", "9-0", mode="lexical")
    assert (silent.rank, silent.score, silent.explain()["parts"]) == (0, 0.0, [])


def test_a_document_found_by_one_signal_says_what_the_others_give_it(index):
    hits = index.search("the timer module, part 3", k=40, candidates=40, explain=True)
    one_sided = [hit for hit in hits if len(hit.signals) == 1]
    assert one_sided
    for hit in one_sided:
        parts = {part["name"]: part for part in hit.explain()["parts"]}
        assert "dense" in parts  # every document has a similarity
        other = parts["dense" if "weights" in hit.signals else "weights"]
        assert other["rank"] is None
        assert other["share"] == 0
