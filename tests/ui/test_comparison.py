"""How two lists agree; and the bars of a score, which sum to it."""

import random

import numpy as np
import pytest

from termweave.records import Hit
from termweave.ui.pages import search_page
from termweave.ui.searching import compare


def test_kendalls_tau_is_the_mean_agreement_of_pairs():
    dice = random.Random(1)
    for length in (2, 3, 10, 40):
        first = [str(number) for number in range(length)]
        second = dice.sample([*first, "extra"], length)
        made = compare(first, second)
        shared = [document for document in first if document in second]
        assert made.both == len(shared)
        if len(shared) > 1:
            ranks = np.array([[listed.index(each) for each in shared] for listed in (first, second)])
            signs = np.sign(ranks[:, :, None] - ranks[:, None, :]).prod(axis=0)
            assert made.correlation == pytest.approx(signs.sum() / (len(shared) * (len(shared) - 1)))
    assert compare(["a", "b", "c"], ["c", "b", "a"]).correlation == -1
    assert compare(["a", "b", "c"], ["a", "b", "c"]).correlation == 1


def test_lists_that_share_nothing_have_no_correlation():
    made = compare(["a", "b"], ["c"])
    assert (made.head, made.shared, made.both, made.correlation) == (2, 0, 0, None)
    assert compare([], []).as_dict()["ranks"] == {}
    ranks = {"a": {"first": 1, "second": None}, "b": {"first": 2, "second": 1}, "c": {"first": None, "second": 2}}
    assert compare(["a", "b"], ["b", "c"]).as_dict()["ranks"] == ranks


def test_bars_sum_to_the_score_and_fit_into_the_best():
    terms = [{"term": "a", "word": "ab", "share": 4.0}, {"term": "b", "word": "bc", "share": 6.0}]
    parts = [
        {"name": "dense", "share": 0.2, "score": 0.4, "rank": 1, "terms": []},
        {"name": "weights", "share": 0.5, "score": 10.0, "rank": 2, "lowest": 1.0, "terms": terms},
        {"name": "rnn", "share": 0.1, "similarity": 0.1, "jaccard": 0.5, "weight": 0.5, "neighbours": ["x", "y"]},
    ]
    hit = Hit("d", 0.8, 1, explanation={"score": 0.8, "parts": parts, "text": "", "words": []})
    bars = search_page.bars_of(hit, 1.6)
    assert [(bar.name, bar.kind) for bar in bars] == [("weights", "words"), ("dense", "meaning"), ("rnn", "rerank")]
    assert sum(bar.share for bar in bars) == pytest.approx(hit.score)
    assert sum(bar.width for bar in bars) == pytest.approx(50)
    assert [bar.start for bar in bars] == pytest.approx([0, bars[0].width, bars[0].width + bars[1].width])
    assert [(word.word, word.share) for word in bars[0].words] == [("bc", pytest.approx(0.3)), ("ab", pytest.approx(0.2))]
    assert bars[2].neighbours == ("x", "y")
    assert search_page.best_of([hit]) == pytest.approx(0.8)
    assert search_page.best_of([]) == 0
