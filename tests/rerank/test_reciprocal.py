"""rNN against the golden cases (outputs of the authors' program), against a slow version that works with sets, and at every edge."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.errors import UsageError
from termweave.rerank import Rules, evidence, labels, neighbourhood, reciprocal, reciprocal_batch
from termweave.rerank.neighbours.equations import exact_sets, fast_sets
from termweave.rerank.neighbours.reciprocal import compare


def grown_sets(lists, k, tau):
    """R* of every element, from the lists of all."""

    def mutual(i, columns):
        return {j for j in lists[i][:columns] if i in lists[j][:columns]}

    sets = []
    for i in range(len(lists)):
        base = mutual(i, k + 1)
        grown = set(base)
        for c in base if tau > 0 else ():
            close = mutual(c, min(round(tau * (k + 1)) + 2, k + 1))
            if 3 * len(base & close) > 2 * len(close):
                grown |= close
        sets.append(grown)
    return sets


def slow(query, vectors, rules, weight, probes=(0,)):
    """The rules of the method, element by element, in float64: the scores that each probe gives all other elements."""
    elements = [query, *vectors]
    count = len(elements)
    s = [[float(np.dot(a, b)) for b in elements] for a in elements]
    for row in s:
        divisor = {"max": max(row), "mean": math.fsum(row) / count + 1e-8}.get(rules.normalize) or 1.0
        row[:] = [value / divisor for value in row]
    k = min(rules.k, count - 1)
    lists = [sorted(range(count), key=lambda j, i=i: (-s[i][j], j))[: k + 1] for i in range(count)]
    sets = grown_sets(lists, k, rules.tau)

    def worth(value):
        return value if rules.weight_function == "linear" else math.expm1(rules.weight_parameter * value)

    rows, undefined = [], []
    for i in range(count):
        total = math.fsum(worth(s[i][j]) for j in sets[i])
        undefined.append(total == 0 and bool(sets[i]))
        rows.append([worth(s[i][j]) / total if j in sets[i] and total else 0.0 for j in range(count)])
    taken = min(rules.k_exp, k + 1)
    if taken > 1:
        undefined = [any(undefined[n] for n in lists[i][:taken]) for i in range(count)]
        rows = [[sum(rows[n][j] for n in lists[i][:taken]) / taken for j in range(count)] for i in range(count)]

    def score(probe, c):
        top, bottom = (sum(map(choose, rows[probe], rows[c])) for choose in (min, max))
        jaccard = 0.0 if undefined[probe] or undefined[c] or bottom == 0 else top / bottom
        return weight * s[probe][c] + (1 - weight) * jaccard

    return np.array([[score(probe, c) for c in range(1, count)] for probe in probes])


def sixteenths(random, shape, low=-16, high=16):
    return random.integers(low, high, shape) / 16


def balanced(random):
    """Collinear, the sum of all elements is 0: that of every row too, but for what float32 loses of it."""
    factors = random.permutation(np.arange(-10, 11))[:, None]
    elements = factors * (random.integers(-511, 512, 8) / 256)
    return elements[0], elements[1:]


#: Every kind of context that is out of the ordinary: query and candidates; neighbours and signs are those of exact arithmetic.
DEGENERATE = {
    "negative": lambda random: (sixteenths(random, 8), sixteenths(random, (20, 8))),
    "pairs of duplicates": lambda random: (sixteenths(random, 8), np.repeat(sixteenths(random, (10, 8)), 2, axis=0)),
    "copies of the query": lambda random: (query := sixteenths(random, 8), np.vstack([[query] * 5, sixteenths(random, (15, 8))])),
    "all identical": lambda random: (query := sixteenths(random, 8), np.array([query] * 20)),
    "some zero vectors": lambda random: (sixteenths(random, 8), sixteenths(random, (20, 8)) * (np.arange(20) % 3 > 0)[:, None]),
    "zero query": lambda random: (np.zeros(8), sixteenths(random, (20, 8))),
    "nothing but zeros": lambda _: (np.zeros(8), np.zeros((20, 8))),
    "collinear": lambda random: (query := sixteenths(random, 8), np.arange(1, 21)[:, None] * query),
    "collinear, opposite": lambda random: (query := sixteenths(random, 8), np.arange(-10, 10)[:, None] * query),
    "balanced": balanced,
    "a hub": lambda random: (sixteenths(random, 8, 1), sixteenths(random, (20, 8), 1) * (1 + 63 * (np.arange(20)[:, None] == 3))),
    "mixed norms": lambda random: (sixteenths(random, 8), sixteenths(random, (20, 8)) * 2.0 ** random.integers(-3, 4, (20, 1))),
    "orthogonal": lambda _: (np.eye(21)[0], np.eye(21)[1:]),
    "k above N": lambda random: (sixteenths(random, 8), sixteenths(random, (4, 8))),
    "all opposite": lambda random: (sixteenths(random, 8, 1), -np.abs(sixteenths(random, (20, 8), 1))),
    "one": lambda random: (sixteenths(random, 8), sixteenths(random, (1, 8))),
    "two": lambda random: (sixteenths(random, 8), sixteenths(random, (2, 8))),
}
#: The golden configurations, and one that averages nothing and grows.
CONFIGURATIONS = [
    (Rules(21, 3), 0.451),
    (Rules(5, 5, tau=0.1276), 0.4688),
    (Rules(6, 6, tau=0.5, weight_function="exp", weight_parameter=2.4, normalize="max"), 0.3),
    (Rules(4, 8, tau=0.5), 0.473),
    (Rules(10, 1, tau=0.8, normalize="mean"), 0.0),
    (Rules(20, 3), 0.0),
]


@pytest.mark.parametrize(("rules", "weight"), CONFIGURATIONS)
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_contexts_follow_the_rules(kind, rules, weight):
    query, vectors = DEGENERATE[kind](np.random.default_rng(7))
    found = reciprocal(query.astype(np.float32), vectors.astype(np.float32), weight=weight, rules=rules)
    assert np.isfinite(found).all()
    # Sums of signed weights nearly cancel in some sets: their shares, and J with them, are large and less exact.
    np.testing.assert_allclose(found, slow(query, vectors, rules, weight)[0], rtol=1e-4, atol=1e-5)


def with_a_near_hub(similarity, levels, own):
    """Similarities (m, m), symmetric, in which the fourth element is nearer to all than anything else."""
    similarity = (similarity + similarity.T) / 2
    similarity[3] = similarity[:, 3] = levels
    np.fill_diagonal(similarity, own)
    similarity[3, 3] = 1000
    return similarity.astype(np.float32)


def test_weights_that_a_hub_leaves_hardly_anything_of_still_share_out_one():
    # exp(20.5 - 111) is what remains of an element's own weight beside the hub's: too small to have a reciprocal in float32.
    similarity = with_a_near_hub(np.random.default_rng(0).uniform(19, 20, (9, 9)), 110 + np.arange(9) / 8, 20.5)
    rules = Rules(k=2, k_exp=2, weight_function="exp")
    np.testing.assert_allclose(fast_sets(similarity, rules).jaccard, exact_sets(similarity, rules).jaccard, atol=1e-5)


def test_how_near_a_hub_is_that_is_in_nobodys_set_does_not_matter():
    # It leads every list of three, and has two others on its own: of the rest nobody may be divided by exp(400).
    drawn = np.random.default_rng(0).uniform(1, 2, (9, 9))
    found = []
    for level in (40, 400):
        similarity = with_a_near_hub(drawn, level + np.arange(9) / 8, 2.5)
        found.append(exact_sets(similarity, Rules(k=2, k_exp=1, weight_function="exp")).jaccard[0, [1, 2, 4, 5, 6]])
    assert found[0].max() > 0
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.parametrize("size", [8, 100, 768])
@pytest.mark.parametrize("count", [5, 60, 200])
def test_copies_tie_to_the_last_bit_wherever_they_stand(count, size):
    random = np.random.default_rng(0)
    which = random.integers(0, 1 + count // 3, count + 1)
    elements = random.normal(size=(1 + count // 3, size)).astype(np.float32)[which]
    similarity, _ = compare(elements[0], elements[1:], Rules())
    first = np.array([which.tolist().index(each) for each in which])
    np.testing.assert_array_equal(similarity, similarity[np.ix_(first, first)])


def test_neighbours_are_what_adds_to_j():
    vectors = (1 + np.random.default_rng(0).normal(size=(31, 8))).astype(np.float32)
    found = neighbourhood(vectors[0], vectors[1:], Rules(k=6, clamp=True))
    named, shares = found.neighbours(0), found.shared[0, 1:]
    assert set(named) == set(np.flatnonzero(shares).tolist()) - {0} != set()
    assert [shares[each] for each in named] == sorted((shares[each] for each in named), reverse=True)


def test_clamped_jaccard_stays_in_the_unit_interval():
    random = np.random.default_rng(0)
    for _ in range(20):
        vectors = random.normal(size=(31, 4)).astype(np.float32)
        jaccard = neighbourhood(vectors[0], vectors[1:], Rules(k=5, tau=0.5, clamp=True)).jaccard
        assert 0 <= jaccard.min() <= jaccard.max() <= 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"k": k}, "whole numbers from 1") for k in (0, 2.5)),
        ({"tau": -0.1}, "tau"),
        ({"weight": 1.5}, "1.5"),
        ({"query": np.zeros(3, np.float32)}, r"\(3,\)"),
        ({"vectors": np.array([[0, 0], [np.inf, 0]], np.float32)}, "NaN, infinity"),
        ({"weight_function": "cubic"}, "cubic"),
        ({"weight_parameter": 0.0}, "above 0, at most 1e"),
        ({"query": [0.0, 1.0], "vectors": [1.0, 2.0]}, r"\(2,\) and \(2,\)"),
        ({"normalize": "median"}, "median"),
    ],
)
def test_what_cannot_be_meant_is_said(changes, said):
    arguments = {"query": np.zeros(2, np.float32), "vectors": np.zeros((4, 2), np.float32), "weight": 0.9} | changes
    others = {name: arguments.pop(name) for name in ("query", "vectors", "weight")}
    with pytest.raises(UsageError, match=said):
        reciprocal(**others, rules=Rules(**arguments))


@settings(deadline=None, max_examples=40)
@given(
    *(st.integers(0, 10_000), st.integers(1, 400), st.integers(1, 30), st.integers(1, 8)),
    *(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans(), st.booleans()),
)
def test_the_fast_way_gives_what_the_exact_way_gives(seed, count, k, k_exp, tau, inclusive, exponential):
    random = np.random.default_rng(seed)
    elements = (random.normal(size=16) + random.normal(size=(count + 1, 16))).astype(np.float32)
    elements /= np.linalg.norm(elements, axis=1, keepdims=True)
    similarity = elements @ elements.T
    function = "exp" if exponential else "linear"
    rules = Rules(k, k_exp, tau, function, 2.0, inclusive=inclusive, clamp=True)
    probes = [0, count // 2]
    if (quick := fast_sets(similarity, rules, probes)) is not None:
        assert_same(quick, exact_sets(similarity, rules, probes))


def assert_same(quick, slow_way):
    np.testing.assert_allclose(quick.shared, slow_way.shared, atol=2e-6)
    np.testing.assert_allclose(quick.shared.sum(axis=2), quick.jaccard, atol=2e-6)
    np.testing.assert_allclose(quick.jaccard, slow_way.jaccard, atol=2e-6)


@pytest.mark.parametrize(
    ("count", "k", "tau"), [(60, 10, 0), (60, 10, 0.3), (200, 20, 0), (300, 10, 0), (600, 3, 0), (600, 3, 0.5)]
)
def test_the_fast_way_is_taken_where_there_are_no_ties_and_left_where_there_are(count, k, tau):
    """Rows sorted, partitioned, or groups of columns first; sets as matrices or as bits: each of the ways."""
    random = np.random.default_rng(0)
    elements = (4 + random.normal(size=(count + 1, 32))).astype(np.float32)
    elements /= np.linalg.norm(elements, axis=1, keepdims=True)
    rules = Rules(k, 3, tau, clamp=True)
    similarity = elements @ elements.T
    assert_same(fast_sets(similarity, rules, [0, 5]), exact_sets(similarity, rules, [0, 5]))
    elements = random.integers(0, 2, (count + 1, 8)).astype(np.float32)
    assert fast_sets(elements @ elements.T, rules) is None


def test_exponentials_that_float32_cannot_hold_do_not_overflow():
    elements = sixteenths(np.random.default_rng(0), (21, 8), 1)
    parameter = 300 / (elements**2).sum(axis=1).max()
    rules = Rules(k=4, k_exp=2, weight_function="exp", weight_parameter=parameter)
    found = reciprocal(elements[0].astype(np.float32), elements[1:].astype(np.float32), weight=0.0, rules=rules)
    np.testing.assert_allclose(found, slow(elements[0], elements[1:], rules, 0.0)[0], atol=1e-4)


def test_a_batch_gives_what_each_query_gives_alone():
    random = np.random.default_rng(0)
    queries = random.normal(size=(4, 16)).astype(np.float32)
    lists = [random.normal(size=(count, 16)).astype(np.float32) for count in (30, 0, 1, 200)]
    options = {"weight": 0.6, "rules": Rules(k=7, tau=0.4, clamp=True)}
    for query, vectors, scores in zip(queries, lists, reciprocal_batch(queries, lists, **options), strict=True):
        np.testing.assert_array_equal(scores, reciprocal(query, vectors, **options))
    with pytest.raises(UsageError, match="got 3 for 4 queries"):
        reciprocal_batch(queries, lists[:3])


@pytest.mark.parametrize("relevant", [[0], [2, 2, 5]])
def test_soft_evidence_is_the_average_over_the_relevant(relevant):
    random = np.random.default_rng(0)
    query, vectors = sixteenths(random, 6, 1), sixteenths(random, (20, 6), 0)
    rules = Rules(k=6, k_exp=3, tau=0.5)
    found = evidence(query.astype(np.float32), vectors.astype(np.float32), relevant, weight=0.4, rules=rules)
    expected = slow(query, vectors, rules, 0.4, [place + 1 for place in relevant]).mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_relevant_documents_outside_the_candidates_are_the_probes():
    random = np.random.default_rng(0)
    query, vectors, liked = sixteenths(random, 6, 1), sixteenths(random, (20, 6), 0), sixteenths(random, (3, 6), 1)
    found = neighbourhood(*(each.astype(np.float32) for each in (query, vectors)), Rules(k=6), liked.astype(np.float32))
    expected = slow(query, np.concatenate([vectors, liked]), Rules(k=6), 0.0, [21, 22, 23]).mean(axis=0)[:20]
    np.testing.assert_allclose(found.jaccard, expected, atol=1e-5)
    np.testing.assert_allclose(found.similarity, (vectors @ liked.T).mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(found.shared.sum(axis=1), found.jaccard, atol=1e-5)
    assert all(other < 20 for candidate in range(20) for other in found.neighbours(candidate))


def test_soft_evidence_says_what_it_cannot_use():
    vectors = np.eye(3, dtype=np.float32)
    rows = (([], {}, "at least one"), ([0, 3], {}, "no candidate 3"), ([0], {"grades": [1, 2]}, "relevant candidates, not 2"))
    for relevant, options, message in rows:
        with pytest.raises(UsageError, match=message):
            evidence(vectors[0], vectors, relevant, **options)
    with pytest.raises(UsageError, match="boost=0"):
        labels(np.ones(3, np.float32), [0], boost=0)


GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "rnn"
INDEX = json.loads((GOLDEN / "index.json").read_text()) if GOLDEN.is_dir() else {"cases": [], "configs": {}}
CASES = [
    (case, config) for case in INDEX["cases"] for config in INDEX["configs"] if list(GOLDEN.glob(f"{case['case']:02d}_*.npz"))
]


def load(folder, stem):
    (file,) = (GOLDEN.parent / folder).glob(f"{stem}.npz")
    with np.load(file) as data:
        return dict(data)


def rules(config):
    values = {name: None if value == "None" else value for name, value in INDEX["configs"][config].items()}
    names = ("k", "k_exp", "trust_factor", "weight_func", "weight_func_param", "normalization")  # as Rules has them
    return Rules(*(values[name] for name in names))


def name_of(value):
    return value if isinstance(value, str) else value["name"]


@pytest.mark.parametrize(("case", "config"), CASES, ids=name_of)
def test_agrees_with_the_golden_values(case, config):
    data = load("rnn", f"{case['case']:02d}_*")
    weight = INDEX["configs"][config]["orig_coef"]
    found = neighbourhood(data["query"], data["docs"], rules(config))
    final = reciprocal(data["query"], data["docs"], weight=weight, rules=rules(config))
    names = ("jaccard", "final") if case[config]["clean"] else ("spec_jaccard_index_ties", "spec_final_index_ties")
    expected, expected_final = (data[f"{config}__{name}"] for name in names)
    np.testing.assert_allclose(found.jaccard, np.nan_to_num(expected, nan=0.0)[-len(final) :], atol=1e-5, rtol=0)
    known = np.isfinite(expected_final)
    np.testing.assert_allclose(final[known], expected_final[known], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("truths", ["soft_gt1", "soft_gt3"])
@pytest.mark.parametrize(("case", "config"), [(case, config) for case, config in CASES if case[config]["clean"]], ids=name_of)
def test_soft_evidence_agrees_with_the_golden_values(case, config, truths):
    data, weight = load("rnn", f"{case['case']:02d}_*"), INDEX["configs"][config]["orig_coef"]
    relevant, grades = (data[f"{config}__{truths}_{part}"].tolist() for part in ("docs", "rel"))
    found = evidence(data["query"], data["docs"], relevant, grades=grades, weight=weight, rules=rules(config))
    np.testing.assert_allclose(found, data[f"{config}__{truths}"], rtol=1e-5, atol=1e-5)


LABELS = [
    (file.stem, normalize, boost, keep)
    for file in sorted(GOLDEN.with_name("labels").glob("*.npz"))
    for normalize in ("max-min", "std", None)
    for boost, keep in ((1.222, 4), (1.525, 32))
]


@pytest.mark.parametrize(("name", "normalize", "boost", "keep"), LABELS)
def test_labels_agree_with_the_golden_values(name, normalize, boost, keep):
    data = load("labels", name)
    expected = data[f"alg1_{normalize.replace('-', '') if normalize else 'none'}_b{boost}_n{keep}"]
    found = labels(data["scores"], data["gt"].tolist(), boost=boost, keep=keep, normalize=normalize)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden cases stand beside the project and are not here")
def test_cases_were_found():
    assert len(CASES) >= 60
    assert len(LABELS) >= 12
