"""Measures against trec_eval's definitions by hand, and the tests against slow versions."""

import itertools
import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.errors import UsageError
from termweave.evaluation.measures import JUDGED, holm, per_query, randomisation_test
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
