"""DTR: the loss against slow transcriptions, worked numbers and the golden cases; the samplers against their definitions."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.training.methods import dtr  # noqa: E402 - after the check

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "template_loss"
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


def test_the_worked_example_holds():
    found = terms(WORKED, 1.0)
    assert found == pytest.approx({"qt": 0.474887, "qq": 0.618622, "tt": 0.313262, "tq": 0.578864}, abs=1e-6)
    given = [torch.from_numpy(WORKED[name]) for name in ("Q", "T", "q_label", "t_label")]
    assert float(sum(dtr.batch_loss(*given, scale=1.0).values())) == pytest.approx(0.940829, abs=1e-6)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden cases stand beside the project and are not here")
@pytest.mark.parametrize("scale", [1, 20])
@pytest.mark.parametrize("case", ["00", "02", "05"])
def test_agrees_with_the_golden_cases(case, scale):
    with np.load(next(GOLDEN.glob(f"{case}_*.npz"))) as file:
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
    templates, queries, expected = Counter(), Counter(), Counter()
    sizes = Counter(TEMPLATE_OF.tolist())
    for _ in range(4000):
        drawn = dtr.semi_independent(TEMPLATE_OF, 3, generator)
        assert len(drawn.templates) == len(set(drawn.templates.tolist())) == 3
        assert len(drawn.queries) == 3
        assert set(TEMPLATE_OF[drawn.queries]) <= set(drawn.templates.tolist())  # each query has its template in the batch
        np.testing.assert_array_equal(drawn.query_labels, TEMPLATE_OF[drawn.queries])
        templates.update(drawn.templates.tolist())
        queries.update(drawn.query_labels.tolist())
        answered = sum(sizes[template] for template in drawn.templates.tolist())
        for template in drawn.templates.tolist():
            expected[template] += 3 * sizes[template] / answered
    assert all(count == pytest.approx(1200, abs=120) for count in templates.values())  # 4000 * 3 / 10
    assert all(queries[template] == pytest.approx(count, abs=150) for template, count in expected.items())
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
