"""rNN against a slow version that works with sets, and at every edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.errors import UsageError
from termweave.rerank import exact, fast, neighbourhood, reciprocal
from termweave.rerank.rules import Rules


def slow(query, vectors, k, k_exp, tau, weight):
    """The rules of the method, element by element, in float64."""
    elements = [query, *vectors]
    count = len(elements)
    s = [[float(np.dot(a, b)) for b in elements] for a in elements]
    k = min(k, count - 1)
    lists = [sorted(range(count), key=lambda j, i=i: (-s[i][j], j))[: k + 1] for i in range(count)]

    def mutual(i, columns):
        return {j for j in lists[i][:columns] if i in lists[j][:columns]}

    sets = []
    for i in range(count):
        base = mutual(i, k + 1)
        grown = set(base)
        if tau > 0:
            columns = min(round(tau * (k + 1)) + 2, k + 1)
            for c in base:
                close = mutual(c, columns)
                if 3 * len(base & close) > 2 * len(close):
                    grown |= close
        sets.append(grown)
    rows, empty = [], []
    for i in range(count):
        total = sum(s[i][j] for j in sets[i])
        empty.append(total == 0)
        rows.append([s[i][j] / total if j in sets[i] and total else 0.0 for j in range(count)])
    taken = min(k_exp, k + 1)
    if taken > 1:
        empty = [any(empty[n] for n in lists[i][:taken]) for i in range(count)]
        rows = [[sum(rows[n][j] for n in lists[i][:taken]) / taken for j in range(count)] for i in range(count)]
    scores = []
    for c in range(1, count):
        top = sum(min(a, b) for a, b in zip(rows[0], rows[c], strict=True))
        bottom = sum(max(a, b) for a, b in zip(rows[0], rows[c], strict=True))
        jaccard = 0.0 if empty[0] or empty[c] or bottom == 0 else top / bottom
        scores.append(weight * s[0][c] + (1 - weight) * jaccard)
    return scores


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(0, 25),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.floats(0, 1),
)
def test_agrees_with_the_rules_element_by_element(seed, count, k, k_exp, tau, weight):
    random = np.random.default_rng(seed)
    # Multiples of 1/16: inner products are exact, so neighbour lists do not hang on the order of a sum. Ties do occur.
    query, vectors = random.integers(1, 16, 6) / 16, random.integers(0, 16, (count, 6)) / 16
    found = reciprocal(query.astype(np.float32), vectors.astype(np.float32), k=k, k_exp=k_exp, tau=tau, weight=weight)
    np.testing.assert_allclose(found, slow(query, vectors, k, k_exp, tau, weight), atol=2e-5)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_very_few_candidates(count, tau):
    vectors = np.eye(4, dtype=np.float32)[:count]
    scores = reciprocal(np.full(4, 0.5, np.float32), vectors, tau=tau)
    assert scores.shape == (count,)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "make",
    [np.zeros_like, np.ones_like, lambda vectors: -np.abs(vectors), lambda vectors: np.repeat(vectors[:1], len(vectors), axis=0)],
)
def test_degenerate_vectors_give_finite_scores(make):
    random = np.random.default_rng(0)
    vectors = make(random.normal(size=(20, 8)).astype(np.float32))
    for query in (vectors[0], np.zeros(8, np.float32), random.normal(size=8).astype(np.float32)):
        for normalize in (None, "max", "mean"):
            scores = reciprocal(query, vectors, tau=0.3, normalize=normalize)
            assert np.isfinite(scores).all()


def test_a_zero_query_has_no_neighbours():
    random = np.random.default_rng(0)
    found = neighbourhood(np.zeros(8, np.float32), random.normal(size=(20, 8)).astype(np.float32))
    assert not found.jaccard.any()


def test_weight_one_is_the_plain_inner_product():
    random = np.random.default_rng(0)
    query, vectors = random.normal(size=8).astype(np.float32), random.normal(size=(20, 8)).astype(np.float32)
    np.testing.assert_allclose(reciprocal(query, vectors, weight=1.0), vectors @ query, rtol=1e-5)


def test_clamped_jaccard_stays_in_the_unit_interval():
    random = np.random.default_rng(0)
    for _ in range(20):
        vectors = random.normal(size=(31, 4)).astype(np.float32)
        jaccard = neighbourhood(vectors[0], vectors[1:], k=5, tau=0.5, clamp=True).jaccard
        assert 0 <= jaccard.min() <= jaccard.max() <= 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 0}, "at least 1"),
        ({"k_exp": 0}, "at least 1"),
        ({"tau": -0.1}, "tau"),
        ({"weight": 1.5}, "1.5"),
        ({"query": np.zeros(3, np.float32)}, r"\(3,\)"),
        ({"query": np.array([np.nan, 0], np.float32)}, "NaN"),
    ],
)
def test_what_cannot_be_meant_is_said(changes, said):
    arguments = {"query": np.zeros(2, np.float32), "vectors": np.zeros((4, 2), np.float32)} | changes
    with pytest.raises(UsageError, match=said):
        reciprocal(arguments.pop("query"), arguments.pop("vectors"), **arguments)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.integers(1, 150),
    st.integers(1, 30),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.booleans(),
    st.booleans(),
)
def test_the_fast_way_gives_what_the_exact_way_gives(seed, count, k, k_exp, tau, inclusive, exponential):
    random = np.random.default_rng(seed)
    elements = (random.normal(size=16) + random.normal(size=(count + 1, 16))).astype(np.float32)
    elements /= np.linalg.norm(elements, axis=1, keepdims=True)
    similarity = elements @ elements.T
    rules = Rules(min(k, count) + 1, k_exp, tau, "exp" if exponential else "linear", 2.0, inclusive, clamp=True)
    quick, slow_way = fast.sets(similarity, rules), exact.sets(similarity, rules)
    if quick is None:
        return
    np.testing.assert_array_equal(quick.members, slow_way.members)
    np.testing.assert_allclose(quick.jaccard, slow_way.jaccard, atol=2e-6)


def test_the_fast_way_is_taken_where_there_are_no_ties_and_left_where_there_are():
    random = np.random.default_rng(0)
    elements = (4 + random.normal(size=(61, 32))).astype(np.float32)
    elements /= np.linalg.norm(elements, axis=1, keepdims=True)
    rules = Rules(11, 3, 0.3, "linear", 1.0, inclusive=False, clamp=True)
    assert fast.sets(elements @ elements.T, rules) is not None
    elements = random.integers(0, 2, (61, 8)).astype(np.float32)
    assert fast.sets(elements @ elements.T, rules) is None
