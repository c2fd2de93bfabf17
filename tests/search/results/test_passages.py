"""The best passages of a hit: their scores, offsets and neighbours."""

from __future__ import annotations

import json

import pytest

import termweave as tw
from termweave import corpora
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build
from termweave.search.features.passages import parse
from termweave.ui import searching

FILLER = "The committee met again on that day and spoke for a long time about nothing of interest to anybody."
TEXTS = {
    "letters": f"{FILLER} {FILLER} A red kettle boils water for the tea of the guests in the kitchen. {FILLER} {FILLER} {FILLER} "
    f"Green tea wants water of eighty degrees, and the kettle may rest for a minute. {FILLER} {FILLER} {FILLER} {FILLER}",
    "short": "A kettle for tea.",
    "other": " ".join([FILLER] * 6 + ["Whoever drinks tea needs a kettle."] + [FILLER] * 3),
}


@pytest.fixture
def index(opensearch_engine, name, tmp_path):
    """Two long documents in passages of 30 words, and a short one."""
    path = tmp_path / "letters.jsonl"
    path.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in TEXTS.items()))
    build(opensearch_engine, corpora.open_source(path), name, BuildOptions(passages=30))
    return tw.connect(opensearch_engine.url).index(name)


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["lexical", "weights", "dense", "hybrid"])
def test_the_best_passages_have_scores_and_offsets(index, mode):
    hits = {hit.id: hit for hit in index.search("tea kettle", mode=mode, passages=2, k=3)}
    assert hits["short"].passages == ()
    first, second = hits["letters"].passages
    assert {part for part in ("red kettle", "Green tea") for each in (first, second) if part in each.text} == {
        "red kettle",
        "Green tea",
    }
    for hit in (hits["letters"], hits["other"]):
        for each in hit.passages:
            assert each.text == TEXTS[hit.id][each.start : each.end]
        # The best one is the one that the search found, with its score.
        best = hit.passages[0]
        if mode != "hybrid":
            assert (best.number, best.score) == (hit.passage.number, pytest.approx(hit.score, rel=1e-4))
        worth = [each.score for each in hit.passages]
        assert worth == sorted(worth, reverse=True)
    assert first.end <= second.start or second.end <= first.start
    assert "Whoever drinks tea" in hits["other"].passages[0].text
    assert "passages" in index.search("tea kettle", mode=mode, passages=1, k=3)[0].as_dict()
    assert "passages" not in index.search("tea kettle", mode=mode, k=1)[0].as_dict()


@pytest.mark.engine
def test_a_document_is_shown_without_what_its_passages_share(index):
    assert index.lineage.passages["count"] > len(TEXTS)
    assert {key: searching.content_of(index, key)[1] for key in TEXTS} == TEXTS


@pytest.mark.engine
@pytest.mark.parametrize("rerank", ["rnn", "rnn@dense"])  # one scales the scores of the signals, the other replaces them
def test_a_reranker_does_not_change_the_passages(index, rerank):
    plain, reranked = (
        {hit.id: hit.passages for hit in index.search("tea kettle", mode="hybrid", rerank=each, passages=2, k=3)}
        for each in ("none", rerank)
    )
    assert plain["letters"][0].score > 0
    assert reranked == plain


@pytest.mark.engine
def test_neighbours_are_joined_at_their_offsets(index):
    def of_other(**given):
        return next(hit for hit in index.search("tea kettle", k=3, **given) if hit.id == "other").passages

    (alone,), (wide,), (whole,) = of_other(passages=1), of_other(passages="1+1"), of_other(passages="1+20")
    assert (wide.number, wide.score) == (alone.number, pytest.approx(alone.score))
    assert wide.start < alone.start
    assert wide.end >= alone.end
    assert wide.text == TEXTS["other"][wide.start : wide.end]
    assert whole.text == TEXTS["other"]
    assert len(of_other(passages="20+20")) == 1  # the neighbours of the best one are the whole text
    numbers = [each.number for each in of_other(passages="20+1")]
    assert all(abs(one - other) > 1 for one in numbers for other in numbers if one != other)
    assert of_other(passages=1, rerank="rnn", rewrite="operators", collapse="id")


@pytest.mark.engine
def test_an_index_without_passages_says_so(opensearch_engine, name, tmp_path):
    path = tmp_path / "short.jsonl"
    path.write_text(json.dumps({"_id": "a", "text": "A kettle."}) + "\n")
    build(opensearch_engine, corpora.open_source(path), name, BuildOptions())
    with pytest.raises(UsageError, match="are not cut into passages"):
        tw.connect(opensearch_engine.url).index(name).search("kettle", passages=3)


@pytest.mark.parametrize("value", ["0", "21", "3+", "+1", "three", "3+21", -1, 2.5, True])
def test_what_is_not_a_number_of_passages_is_said(value):
    with pytest.raises(UsageError, match="how many passages"):
        parse(value)
