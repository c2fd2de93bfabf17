"""SIR: Eq. 1 against a slow transcription, the bounds of Eq. 7, the selection, the fits. V3 and V4: test_whole_objectives."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from termweave.training.data.pairs import Pairs
from termweave.training.methods import sir
from termweave.training.ranker.first_stage import CandidateLists
from termweave.training.ranker.model import RankerInputs


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def slow_loss(probabilities):
    """Eq. 1, one document at a time."""
    return -math.log(probabilities[0]) - sum(math.log(1 - each) for each in probabilities[1:])


def fast_levels(scores, sizes):
    present = torch.ones_like(scores, dtype=torch.bool)
    levels, kept, there, current = [sir.log_probabilities(scores, present)], [], [present], scores
    for size in sizes:
        kept.append(sir.survivors(current, there[-1], size))
        there.append(there[-1].gather(1, kept[-1]))
        current = current.gather(1, kept[-1])
        levels.append(sir.log_probabilities(current, there[-1]))
    return levels, kept, there


SCORES = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 24)) * 2)


@pytest.mark.parametrize(
    ("size", "cap", "floor", "uniform"),
    [(88, 0.0303, 4.4718, 5.4716), (8, 0.2797, 2.0341, 3.0142)],
)
def test_the_literal_product_bounds_the_probability_of_the_right_document(size, cap, floor, uniform):
    present = torch.ones(1, size, dtype=torch.bool)
    certain, equal = torch.zeros(1, size, dtype=torch.float64), torch.zeros(1, size, dtype=torch.float64)
    certain[0, 0] = 200.0
    (best,) = sir.conditional([sir.log_probabilities(certain, present)], [], [present])
    assert float(best[0, 0].exp()) == pytest.approx(cap, abs=5e-5)
    assert float(sir.block_loss(best, present)) == pytest.approx(floor, abs=5e-5)
    (even,) = sir.conditional([sir.log_probabilities(equal, present)], [], [present])
    assert float(sir.block_loss(even, present)) == pytest.approx(uniform, abs=5e-5)


def test_the_gradient_of_the_chain_is_right():
    scores = SCORES[:, :9].clone().requires_grad_(requires_grad=True)

    def total(values):
        levels, kept, there = fast_levels(values, [5, 3])
        parts = zip(sir.conditional(levels, kept, there), there, strict=True)
        return sum(sir.block_loss(level, present) for level, present in parts)

    assert torch.autograd.gradcheck(total, (scores,))
    total(scores).backward()
    assert scores.grad[:, 1:].abs().min() > 0  # a document that was left out at level 1 still gets the gradient of P_1


def test_an_absent_document_has_no_part_in_anything():
    padded = torch.cat([SCORES, torch.full((3, 4), 50.0)], dim=1)
    present = torch.cat([torch.ones(3, 24, dtype=torch.bool), torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    whole = torch.ones_like(SCORES, dtype=torch.bool)
    assert float(sir.block_loss(sir.log_probabilities(padded, present), present)) == pytest.approx(
        float(sir.block_loss(sir.log_probabilities(SCORES, whole), whole))
    )
    assert sir.survivors(padded, present, 12).tolist() == sir.survivors(SCORES, whole, 12).tolist()


@pytest.mark.parametrize("gap", [15.0, 500.0])
def test_a_wrong_document_that_is_certain_costs_what_equation_1_says(gap):
    """P of the wrong one is 1 in float32. Eq. 1 is then gap + (gap - log 2), and pulls on it and pushes the right one."""
    scores = torch.tensor([[0.0, gap, 0.0]], requires_grad=True)
    loss = sir.block_loss(sir.log_probabilities(scores, torch.ones(1, 3, dtype=torch.bool)), torch.ones(1, 3, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(2 * gap - math.log(2), rel=1e-5)
    assert scores.grad.tolist()[0] == pytest.approx([-1.5, 2.0, -0.5], abs=1e-3)


def objective(scores, **settings):
    """A fit whose model gives known scores, also of the documents at places of the first block."""
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "anchor": False, **settings})
    return SimpleNamespace(settings=settings, device="cpu", scores=scores)


class Scored(sir.Sir):
    """The method on known scores."""

    def score(self, fit, batch, places=None):  # noqa: ARG002 - the contract names the arguments
        return fit.scores if places is None else fit.scores.gather(1, places)


def blocks(size=24, seed=1):
    keys = np.random.default_rng(seed).random((3, size)).astype(np.float32)
    return SimpleNamespace(drawn=SimpleNamespace(documents=np.arange(3 * size).reshape(3, size), keys=keys))


def test_one_block_has_equation_1_or_the_contrastive_loss():
    shares = [softmax(row) for row in SCORES.tolist()]
    for variant in ("static", "v2"):
        found = Scored().loss(objective(SCORES, variant=variant), blocks())
        assert float(found["block"]) == pytest.approx(np.mean([slow_loss(one) for one in shares]), abs=1e-6)
    contrast = Scored().loss(objective(SCORES, variant="lcl"), blocks())
    assert float(contrast["block"]) == pytest.approx(np.mean([-math.log(one[0]) for one in shares]), abs=1e-6)


def test_the_random_selector_keeps_the_right_document_and_draws_anew():
    worst = SCORES.clone()
    worst[:, 0] = -50.0  # the right document is the worst by far
    drawn = []
    for seed in (1, 2):
        levels, kept, _ = Scored()._levels(
            objective(worst, variant="v3", selector="random"), blocks(seed=seed), torch.ones_like(worst, dtype=torch.bool)
        )
        assert [each.shape[1] for each in levels] == [24, 12, 5]
        assert all((each[:, 0] == 0).all() for each in kept)
        drawn.append(kept[0].tolist())
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"variant": "static"}, [5]),
        ({"variant": "v1"}, [5]),
        ({"variant": "v1", "selector": "top"}, [24, 12, 5]),
        ({"variant": "v3"}, [24]),
        ({"variant": "v4", "reuse": False}, [24, 12, 5]),
    ],
    ids=str,
)
def test_what_a_step_scores(given, sizes):
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "batch": 3, "anchor": False, **given})
    assert list(settings.trained_blocks()) == sizes
    assert settings.scored() == 3 * sum(sizes)


class _Model:
    """A model that counts how often it starts anew, and ranks a document by its number."""

    def __init__(self):
        self.restarts = 0

    def state_dict(self):
        return {"weight": torch.ones(1)}

    def load_state_dict(self, _state):
        self.restarts += 1

    def rank(self, _reader, _question, texts, _features):
        return np.array([float(text) for text in texts])


@pytest.mark.parametrize(
    ("given", "fits", "restarts", "left"),
    [
        ({"variant": "v1"}, [5], 1, [30]),
        ({"variant": "v1", "selector": "top"}, [24, 12, 5], 3, [30, 11, 4]),
        ({"variant": "v2"}, [24, 12, 5], 0, [30, 30, 30]),
        ({"variant": "v2", "selector": "top"}, [24, 12, 5], 0, [30, 11, 4]),
        ({"variant": "v3"}, [0], 0, [30]),
    ],
    ids=str,
)
def test_compressors_are_trained_one_after_the_other_on_what_the_one_before_selected(given, fits, restarts, left, monkeypatch):
    lists = CandidateLists(np.tile(np.arange(30), (2, 1)), np.zeros((2, 30, 1), np.float32))
    pairs, negatives = Pairs(["q", "r"], [frozenset()] * 2), [np.random.default_rng(0).permutation(30), np.arange(30)]
    inputs = RankerInputs(1.0, pairs, negatives, lists, list(map(str, range(30))), None)
    monkeypatch.setattr(sir, "_SAY_EVERY", -1.0)
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "anchor": False, **given})
    asked, said = [], []

    def fit(name="", inputs=None, blocks=(0,)):
        columns = (inputs or trainer.inputs)[0].negatives[0].tolist()
        asked.append((blocks[-1], columns))

    trainer = SimpleNamespace(settings=settings, inputs=[inputs], model=_Model(), fit=fit, say=said.append)
    sir.Sir().fits(trainer)
    selections = [f"selecting the best {count}: 1 of 2 questions" for count in left[1:] if count < 30]
    assert [line.partition(",")[0] for line in said] == selections
    assert [size for size, _ in asked] == fits
    assert [len(columns) for _, columns in asked] == left
    assert trainer.model.restarts == restarts
    for _, columns in asked[1:]:
        assert len(columns) == 30 or set(columns) == set(range(30 - len(columns), 30))  # Eq. 4: the best ones
