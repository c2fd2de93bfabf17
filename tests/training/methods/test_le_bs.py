"""LE-BS: worked numbers and borders of label distributions and loss; the sampler against its definition. Eq. 5 to 8: test_whole_objectives."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.training.dense.term_label_weights import type_weights  # noqa: E402
from termweave.training.methods import le_bs  # noqa: E402

X, Y = {"a": 0.5, "b": 0.2, "z": 0.4}, {"a": 0.6, "b": -0.1, "c": 0.3}


def test_the_worked_example_holds():
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
