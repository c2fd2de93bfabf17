"""Measures against trec_eval, by hand and on every query of real sets; the tests of differences against slow versions."""

import itertools
import math
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave import corpora
from termweave.errors import UsageError
from termweave.evaluation.measures import JUDGED, MEASURES, holm, per_query, randomisation_test
from termweave.records import Run

QRELS = {"q1": {"a": 2, "b": 1, "z": 0}, "q2": {"c": 1}, "q3": {"d": 1}}
RUN = Run("test", {"q1": {"b": 3.0, "x": 2.0, "a": 1.0}, "q2": {"x": 2.0, "c": 1.0}, "q3": {}})


def test_values_by_hand_and_a_query_without_results_counts():
    found = per_query(RUN, QRELS, ["q1", "q2", "q3"])
    ideal = 2 + 1 / math.log2(3)
    assert found["nDCG@10"] == pytest.approx([(1 + 2 / math.log2(4)) / ideal, 1 / math.log2(3), 0.0])
    assert found["MRR@10"] == pytest.approx([1.0, 0.5, 0.0])
    assert found["recall@100"] == pytest.approx([1.0, 1.0, 0.0])
    assert per_query(RUN, QRELS, ["q1"], relevant_from=2)["MRR@10"] == pytest.approx([1 / 3])


def test_the_judged_share_counts_zeros_and_what_is_missing():
    qrels = {"q1": {"a": 0, "b": 2}, "q2": {"c": 1}, "q3": {"d": 1}}
    run = Run("x", {"q1": {"a": 3.0, "x": 2.0, "b": 1.0, "y": 0.5}, "q2": {}})
    assert per_query(run, qrels, ["q1", "q2", "q3"], measures=[JUDGED])[JUDGED].tolist() == [0.5, 0, 0]
    ten = Run("x", {"q1": {**{f"x{number}": 20.0 - number for number in range(10)}, "a": 1.0}})
    assert per_query(ten, qrels, ["q1"], measures=[JUDGED])[JUDGED].tolist() == [0]


_SPAM = """
from termweave.evaluation import per_query
from termweave.records import Run

qrels = {"q1": {"a": 2, "b": -2}, "spam": {"a": -2, "b": -3}, "q2": {"b": 1}}
run = Run("test", {query: {"b": 2.0, "a": 1.0} for query in qrels})
print([values.tolist() for values in per_query(run, qrels, list(qrels), measures=["nDCG@1", "MRR@10", "recall@10"]).values()])
"""


_ODD = """
def values(queries, documents):
    first, second, third = documents
    qrels = {query: {first: 2, second: 1} for query in queries}
    run = Run("test", {query: {second: 0.3, third: 0.2, first: 0.1} for query in queries})
    return [each.tolist() for each in per_query(run, qrels, queries, measures=["nDCG@2", "nDCG@10", "MRR@10", "mrr@10", "recall@1"]).values()]

odd = ["a\\0b", "a\\0c", "a", "", "\\0", "\\ud800", "1", "0"]
plain = [f"q{n}" for n in range(len(odd))]
expected = values(plain, ["x", "y", "z"])
assert 0 < min(map(min, expected)) and max(map(max, expected[:2])) < 1, expected
for documents in (odd[:3], odd[2:5], odd[5:]):
    assert values(odd, documents) == expected, values(odd, documents)
"""


def test_neither_spam_nor_ids_that_are_no_texts_of_c_end_the_process():
    """In one of its own. Grades below -1 ended it (SIGSEGV), as did ids that are equal up to a NUL (SIGABRT), and half of a surrogate pair."""
    done = subprocess.run([sys.executable, "-c", _SPAM + _ODD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[[0.0, 0.0, 1.0], [0.5, 0.0, 1.0], [1.0, 0.0, 1.0]]"), done.stderr


@pytest.mark.parametrize("name", ["nDCG", "nDCG@x", "precision@10", "recall@0"])
def test_unknown_measures_are_refused(name):
    with pytest.raises(UsageError, match="measure"):
        per_query(RUN, QRELS, ["q1"], measures=[name])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([-0.5, -0.2, 0.0, 0.1, 0.3]), min_size=1, max_size=10))
def test_randomisation_agrees_with_all_sign_assignments(differences):
    values = np.array(differences)
    sums = [abs(values @ signs) for signs in itertools.product([-1, 1], repeat=len(values))]
    exact = sum(total >= abs(values.sum()) - 1e-9 for total in sums) / len(sums)
    assert randomisation_test(values, np.zeros(len(values))) == pytest.approx(exact, abs=0.02)


def test_p_of_many_queries_takes_little_memory_and_is_that_of_all_draws_at_once():
    draw = np.random.default_rng(5)
    first, second = draw.random(10_001), draw.random(10_001)
    difference = first - second
    signs = np.random.default_rng(0).integers(0, 2, size=(400, len(difference)), dtype=np.int8) * 2.0 - 1
    extreme = (np.abs(signs @ difference) >= abs(difference.sum()) - 1e-9).sum()
    tracemalloc.start()
    try:
        p = randomisation_test(first, second, draws=400)
        assert tracemalloc.get_traced_memory()[1] < 15e6
    finally:
        tracemalloc.stop()
    assert p == (extreme + 1) / 401
    assert randomisation_test(first + 0.05, first, draws=2000) < 0.001


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_never_lowers_and_keeps_the_order(values):
    corrected = holm(values)
    for before, after in zip(values, corrected, strict=True):
        assert before <= after <= 1
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert [corrected[place] for place in order] == sorted(corrected)


def test_what_is_measured_is_the_order_that_is_shown():
    near = 0.5 + 1e-12  # trec_eval's float32 cannot tell these apart, and would take the higher id first
    for scores in ({"a": 0.5, "b": 0.5}, {"a": near, "b": 0.5}):
        found = per_query(Run("tied", {"q": scores}), {"q": {"a": 1}}, ["q"], measures=["nDCG@1", "MRR@10", "recall@1"])
        assert [float(values[0]) for values in found.values()] == [1.0, 1.0, 1.0]


#: Data set, with the split whose judgements are read.
SETS = (
    *(
        "banking77:test",
        "cmrc2018:test",
        "cranfield:test",
        "medquad:test",
        "movies:dev",
        "nfcorpus:test",
        "trec-dl-2019-2020:test",
    ),
    "twitter-airlines:test",
)


def ranking(random, grades, strangers):
    """Some of the judged documents among others, in any order, a few with equal scores; now and then nothing."""
    documents = [each for each in grades if random.random() < 0.8] + [f"other {n}" for n in range(random.integers(0, strangers))]
    random.shuffle(documents)
    scores = np.round(np.sort(random.uniform(-5, 30, len(documents)))[::-1], int(random.integers(0, 6)))
    return dict(zip(documents, scores.tolist(), strict=True))


def by_hand(documents, grades, relevant_from):
    """The definitions as they are printed: gains are grades, discounts log2(rank + 1)."""
    gains = [max(0, grades.get(document, 0)) for document in documents[:10]]
    ideal = sorted((max(0, grade) for grade in grades.values()), reverse=True)[:10]
    best = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal, 1))
    found = [rank for rank, document in enumerate(documents, 1) if grades.get(document, 0) >= relevant_from]
    relevant = sum(grade >= relevant_from for grade in grades.values())
    return {
        "nDCG@10": sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1)) / best if best else 0.0,
        "MRR@10": 1 / found[0] if found and found[0] <= 10 else 0.0,
        "recall@100": sum(rank <= 100 for rank in found) / relevant if relevant else 0.0,
    }


@pytest.mark.parametrize("name", SETS)
def test_every_query_of_a_set_has_trec_evals_figures(name, shared):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytrec_eval

    dataset = corpora.open_dataset(str(shared / "data" / name))
    qrels, level = dataset.qrels(), dataset.relevant_from
    random = np.random.default_rng(len(name))
    run = {query: ranking(random, grades, 130 if len(qrels) < 1500 else 20) for query, grades in qrels.items()}
    queries = list(qrels)
    ours = per_query(Run("x", run), qrels, queries, relevant_from=level)
    # trec_eval orders equal scores by id and keeps float32; what it is shown here is the order, as scores it can tell apart.
    shown = {query: {document: -rank for rank, document in enumerate(scores)} for query, scores in run.items() if scores}
    cut = {query: dict(list(scores.items())[:10]) for query, scores in shown.items()}
    graded = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(shown)
    binary = pytrec_eval.RelevanceEvaluator(qrels, {"recall.100"}, relevance_level=level).evaluate(shown)
    first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}, relevance_level=level).evaluate(cut)
    theirs = (("nDCG@10", graded, "ndcg_cut_10"), ("MRR@10", first, "recip_rank"), ("recall@100", binary, "recall_100"))
    for measure, found, key in theirs:
        np.testing.assert_allclose(ours[measure], [found.get(query, {}).get(key, 0.0) for query in queries], atol=1e-9)
    slow = [by_hand(list(run[query]), qrels[query], level) for query in queries]
    for measure in MEASURES:
        np.testing.assert_allclose(ours[measure], [each[measure] for each in slow], atol=1e-9)
