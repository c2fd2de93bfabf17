"""CODER, DTR and LE-BS: worked numbers, golden cases and borders of targets and losses; the samplers against their definitions."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from termweave.training.dense.list_targets import program_labels
from termweave.training.dense.term_label_weights import type_weights
from termweave.training.methods import coder, dtr, le_bs

LABELS = Path(__file__).parents[4] / "shared" / "golden" / "labels"
CASES = [
    (file.stem, normalize, boost, keep)
    for file in sorted(LABELS.glob("*.npz"))
    for normalize in ("max-min", "std", None)
    for boost, keep in ((1.222, 4), (1.525, 32))
]


def test_the_worked_example_of_coder_holds():
    scores = np.array([3.0, 1.0, 2.0], np.float32)
    target = coder.target(coder.CoderParameters(boost=1.5, keep_labels=2), [0], 3, scores)
    assert target.round(3).tolist() == [0.731, 0.0, 0.269]


def test_uniform_smoothing_is_eq_2_and_hard_labels_share_the_probability():
    assert coder.uniform_labels(4, [1, 3]).tolist() == [0.0, 0.5, 0.0, 0.5]
    np.testing.assert_allclose(coder.uniform_labels(5, [0], 0.1), [0.9, 0.025, 0.025, 0.025, 0.025])
    np.testing.assert_allclose(coder.uniform_labels(4, [0, 2], 0.2), [0.4, 0.1, 0.4, 0.1])
    assert coder.uniform_labels(2, [0, 1], 0.5).tolist() == [0.5, 0.5]


@pytest.mark.skipif(not CASES, reason="the golden cases stand beside the project and are not here")
@pytest.mark.parametrize(("name", "normalize", "boost", "keep"), CASES)
def test_both_label_paths_agree_with_the_golden_cases(name, normalize, boost, keep):
    with np.load(LABELS / f"{name}.npz") as file:
        data = dict(file)
    key = f"{normalize.replace('-', '') if normalize else 'none'}_b{boost}_n{keep}"
    for path, golden, tolerance in (("algorithm", "alg1", 1e-6), ("program", "coder", 1e-3)):
        smoothing = coder.CoderParameters(boost=boost, keep_labels=keep, normalisation=normalize, label_path=path)
        target = coder.target(smoothing, data["gt"].tolist(), len(data["scores"]), data["scores"])
        np.testing.assert_allclose(target, data[f"{golden}_{key}"], atol=tolerance)


def test_a_program_without_a_score_left_falls_back_on_the_judgements():
    scores = np.array([0.01, 0.05], np.float32)
    assert program_labels(scores, [1]).tolist() == [0.0, 1.0]


# -- Loss


def test_filled_up_lists_count_as_short_ones():
    scores, targets = torch.randn(1, 4, dtype=torch.float64), torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    present = torch.tensor([[True, True, True, False]])
    found = coder.list_loss(scores, targets, 0.0, present)
    assert found.item() == pytest.approx(coder.list_loss(scores[:, :3], targets[:, :3]).item())


def test_the_gradients_are_right_also_of_the_temperature():
    targets = torch.tensor([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    present = torch.tensor([[True, True, True, True], [True, True, True, False]])
    scores = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    log_temperature = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, t: coder.list_loss(s, targets, t, present), (scores, log_temperature))


TEMPLATE_LOSS = Path(__file__).parents[4] / "shared" / "golden" / "template_loss"
SIDES = {"qt": "QT", "qq": "QQ", "tt": "TT", "tq": "TQ"}


def terms(data, scale, top=0):
    """Each term of Eq. 4.3, alone."""
    given = [torch.from_numpy(data[name]) for name in ("Q", "T", "q_label", "t_label")]
    weights = {"qt": (1, 0, 0, 0), "qq": (0, 1, 0, 0), "tt": (0, 0, 1, 0), "tq": (0, 0, 0, 1)}
    return {name: float(dtr.batch_loss(*given, weights=weight, scale=scale, top=top)[name]) for name, weight in weights.items()}


WORKED = {
    "Q": np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]),
    "T": np.array([[1.0, 0.0], [0.0, 1.0]]),
    "q_label": np.array([0, 0, 1]),
    "t_label": np.array([0, 1]),
}


def test_the_worked_example_of_dtr_holds():
    found = terms(WORKED, 1.0)
    assert found == pytest.approx({"qt": 0.474887, "qq": 0.618622, "tt": 0.313262, "tq": 0.578864}, abs=1e-6)
    given = [torch.from_numpy(WORKED[name]) for name in ("Q", "T", "q_label", "t_label")]
    assert float(sum(dtr.batch_loss(*given, scale=1.0).values())) == pytest.approx(0.940829, abs=1e-6)


@pytest.mark.skipif(not TEMPLATE_LOSS.is_dir(), reason="the golden cases stand beside the project and are not here")
@pytest.mark.parametrize("scale", [1, 20])
@pytest.mark.parametrize("case", ["00", "02", "05"])
def test_agrees_with_the_golden_cases(case, scale):
    with np.load(next(TEMPLATE_LOSS.glob(f"{case}_*.npz"))) as file:
        data = dict(file)
    found = terms(data, float(scale))
    for name, golden in SIDES.items():
        assert found[name] == pytest.approx(float(data[f"eq44_s{scale}_{golden}_mean_over_all_anchors"]), rel=1e-10), name
    best = terms(data, float(scale), top=4)
    for name in ("qt", "tt"):  # one positive an anchor: the author's class weighs anchors as Eq. 4.4 does
        assert found[name] == pytest.approx(float(data[f"author_s{scale}_{SIDES[name]}"]), rel=1e-10)
        assert best[name] == pytest.approx(float(data[f"author_s{scale}_{SIDES[name]}_top4"]), rel=1e-6)
    if len(set(Counter(data["q_label"].tolist()).values())) > 1:  # uneven: the author weighs pairs, the thesis anchors
        assert found["qq"] != pytest.approx(float(data[f"author_s{scale}_QQ"]), rel=1e-6)


def test_one_template_in_the_batch_costs_nothing_and_moves_nothing():
    queries = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    loss = dtr.batch_loss(queries, torch.randn(1, 4, dtype=torch.float64), torch.zeros(3), torch.zeros(1))
    loss = sum(loss.values())
    loss.backward()
    assert loss.item() == 0.0
    assert bool((queries.grad == 0).all())


# -- Samplers

TEMPLATE_OF = np.repeat(np.arange(10), [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]) + 100


def test_algorithm_4_1_draws_templates_uniformly_and_queries_among_theirs():
    generator = np.random.default_rng(0)
    templates, queries = Counter(), Counter()
    for _ in range(4000):
        drawn = dtr.semi_independent(TEMPLATE_OF, 3, generator)
        assert len(drawn.queries) == len(set(drawn.templates.tolist())) == 3
        assert set(TEMPLATE_OF[drawn.queries]) <= set(drawn.templates.tolist())  # each query has its template in the batch
        np.testing.assert_array_equal(drawn.query_labels, TEMPLATE_OF[drawn.queries])
        templates.update(drawn.templates.tolist())
        queries.update(drawn.query_labels.tolist())
    assert all(count == pytest.approx(1200, abs=120) for count in templates.values())  # 4000 * 3 / 10
    assert queries[109] > 10 * queries[100]  # positives follow the data


def test_algorithm_4_1_repeats_queries_only_where_there_are_too_few():
    drawn = dtr.semi_independent(TEMPLATE_OF, 200, np.random.default_rng(0))
    assert sorted(drawn.templates.tolist()) == sorted(set(TEMPLATE_OF.tolist()))
    assert len(drawn.queries) == 200
    enough = dtr.semi_independent(TEMPLATE_OF, 10, np.random.default_rng(0))
    assert len(set(enough.queries.tolist())) == 10


def test_random_negatives_belong_to_one_query():
    drawn = dtr.random_negatives(TEMPLATE_OF, 4, np.random.default_rng(3), negatives=2)
    assert len(drawn.templates) == 4 + 8
    known = [frozenset({template}) for template in TEMPLATE_OF.tolist()]
    left_out, _ = dtr.exclusions(drawn, known)
    negatives = ~left_out & (drawn.query_labels[:, None] != drawn.templates[None, :])
    assert negatives.sum(axis=1).tolist() == [2, 2, 2, 2]


def test_a_second_right_template_is_no_negative():
    known = [frozenset({0, 2}), frozenset({1}), frozenset({2})]
    drawn = dtr.LabelledBatch(np.array([0, 1, 2]), np.array([0, 1, 2]), np.array([0, 1, 2]))
    left_out, related = dtr.exclusions(drawn, known)
    assert left_out.tolist() == [[True, False, True], [False, True, False], [False, False, True]]
    assert related.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    vectors, labels = torch.eye(3, dtype=torch.float64), torch.arange(3)
    masks = torch.from_numpy(left_out), torch.from_numpy(related)
    loss = dtr.batch_loss(vectors, vectors, labels, labels, weights=(1, 0, 0, 0), scale=1.0, left_out=masks)["qt"]
    one, two = math.log(1 + math.exp(-1)), math.log(1 + 2 * math.exp(-1))
    assert float(loss) == pytest.approx((one + two + two) / 3)


X, Y = {"a": 0.5, "b": 0.2, "z": 0.4}, {"a": 0.6, "b": -0.1, "c": 0.3}


def test_the_worked_example_of_le_bs_holds():
    assert le_bs.label_distribution(X, Y) == pytest.approx(0.291313, abs=1e-6)
    assert le_bs.label_distribution(Y, X) == le_bs.label_distribution(X, Y)


def test_texts_without_a_shared_significant_term_get_0():
    assert le_bs.label_distribution({"a": 1.0}, {"b": 1.0}) == 0.0
    assert le_bs.label_distribution({"a": 1.0}, {"a": -1.0}) == 0.0


def test_a_term_has_its_largest_weight():
    assert type_weights(["a", "b", "a"], [0.2, -1.0, 0.7]) == {"a": 0.7, "b": -1.0}


def test_distilled_labels_lie_between_0_and_1():
    np.testing.assert_allclose(le_bs.distilled(np.array([1.0, 0.0, -1.0, 1.0000001], np.float32)), [1.0, 0.5, 0.0, 1.0])


@pytest.mark.parametrize("farthest", [1.0, 0.5])
def test_a_student_like_its_teacher_has_no_loss(farthest):
    cosines = np.linspace(1 - 2 * farthest, 1, 9, dtype=np.float32)  # no pair is farther than `farthest`
    distances = torch.from_numpy((1 - cosines.astype(np.float64)) / 2)
    d = torch.from_numpy(le_bs.distilled(cosines, farthest))
    assert le_bs.label_loss(distances, d, torch.zeros(9), 1.0, farthest).item() == pytest.approx(0, abs=1e-10)


def test_a_zero_vector_is_half_way_from_everything():
    assert le_bs.distance(torch.zeros(1, 4), torch.ones(1, 4)).tolist() == [0.5]


def test_farthest_is_the_distance_that_a_label_of_0_asks_for():
    f, label = torch.tensor([0.0, 0.5, 0.75], dtype=torch.float64), torch.tensor([1.0, 0, 0], dtype=torch.float64)
    assert le_bs.label_loss(f, label, label, 0.0, farthest=0.5).item() == pytest.approx(0.25**2)
    soft = torch.tensor([0.8, 0.1, 0.0], dtype=torch.float64)
    expected = sum((float(f[i]) + 0.5 * (float(soft[i]) - 1)) ** 2 for i in range(3))
    assert le_bs.label_loss(f, soft, label, 1.0, farthest=0.5).item() == pytest.approx(expected, abs=1e-12)


# -- Sampler

RELEVANT = [frozenset({0}), frozenset({1, 2}), frozenset({3})]
KNOWN = [frozenset({0, 9}), frozenset({1, 2}), frozenset({3})]
HARD = [np.array([4, 5]), np.array([6]), np.array([], dtype=np.int64)]


def pairs_of(known, negatives, seed, **given):
    inputs = SimpleNamespace(pairs=SimpleNamespace(relevant=RELEVANT, known=known), negatives=negatives, documents=range(20))
    settings = le_bs.LeBs().settings(given)
    drawn = le_bs.draw_pairs(inputs, settings, np.array([0, 1, 2]), np.random.default_rng(seed))
    return drawn, dict(zip(drawn.pairs(), drawn.labels.tolist(), strict=True))


def test_each_query_gets_one_answer_and_its_negatives():
    answers = set()
    for seed in range(200):
        drawn, pairs = pairs_of(KNOWN, HARD, seed, drawn=1, random_negatives=2)
        assert len(drawn.documents) == len(set(drawn.documents.tolist()))
        for query in range(3):
            own = {document: label for (x, document), label in pairs.items() if x == query}
            right = [document for document, label in own.items() if label == 1.0]
            assert len(right) == 1  # a random draw never answers the query
            assert set(right) <= RELEVANT[query]
            assert not {document for document, label in own.items() if label == 0.0} & KNOWN[query]
            assert len(own) == (3 if query == 2 else 4)  # query 2 has no hard negative
        answers |= {document for (x, document), label in pairs.items() if x == 1 and label == 1.0}
        assert any((0, hard) in pairs for hard in (4, 5))
    assert answers == {1, 2}


def test_in_batch_pairs_are_all_pairs_but_those_that_say_nothing():
    given = {"drawn": 0, "random_negatives": 0, "in_batch": True}
    drawn, pairs = pairs_of(KNOWN, [], 0, **given)
    assert len(drawn.documents) == 3
    assert len(pairs) == 9
    assert [pairs[x, y] for x in range(3) for y in drawn.documents.tolist()] == np.eye(3).ravel().tolist()
    spared = [frozenset({0, 3}), *KNOWN[1:]]
    assert (0, 3) not in pairs_of(spared, [], 0, **given)[1]  # no right answer, and no wrong one
