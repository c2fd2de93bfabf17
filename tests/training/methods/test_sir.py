"""SIR: the equations against slow transcriptions, the bounds of Eq. 7, the selection, and V3 and V4 against a pass of the whole block."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.errors import UsageError  # noqa: E402 - after the check
from termweave.training.methods import sir  # noqa: E402


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def slow_loss(probabilities):
    """Eq. 1, one document at a time."""
    return -math.log(probabilities[0]) - sum(math.log(1 - each) for each in probabilities[1:])


def slow_levels(scores, sizes):
    """Eq. 4: the documents of each level by identity, the right one first, then the best."""
    levels = [list(range(len(scores)))]
    for size in sizes:
        wrong = sorted(levels[-1][1:], key=lambda document: -scores[document])
        levels.append([0, *wrong[: size - 1]])
    return levels


def slow_conditional(scores, levels, chain):
    """Eq. 7: products over the levels, documents matched by identity."""
    by_level = [dict(zip(level, softmax([scores[document] for document in level]), strict=True)) for level in levels]
    result = []
    for place, level in enumerate(levels):
        products = [math.prod(by_level[earlier][document] for earlier in range(place + 1)) for document in level]
        result.append(softmax(products) if chain == "literal" else [each / sum(products) for each in products])
    return result


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


def test_equation_1_is_the_transcription():
    present = torch.ones_like(SCORES, dtype=torch.bool)
    expected = np.mean([slow_loss(softmax(row)) for row in SCORES.tolist()])
    assert float(sir.block_loss(sir.log_probabilities(SCORES, present), present)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("chain", ["literal", "log"])
def test_equations_4_7_and_8_are_the_transcription(chain):
    levels, kept, there = fast_levels(SCORES, [12, 5])
    found = sir.conditional(levels, kept, there, chain)
    for row, scores in enumerate(SCORES.tolist()):
        documents = slow_levels(scores, [12, 5])
        for level, expected in enumerate(slow_conditional(scores, documents, chain)):
            assert found[level][row].exp().tolist() == pytest.approx(expected, abs=1e-6)
            assert float(sir.block_loss(found[level][row : row + 1], there[level][row : row + 1])) == pytest.approx(
                slow_loss(expected), abs=1e-6
            )


def test_gathering_by_identity_is_the_beginning_of_a_block_with_the_survivors_in_front():
    levels, kept, there = fast_levels(SCORES, [12, 5])
    best_first = SCORES.clone()
    best_first[:, 1:] = SCORES[:, 1:].sort(dim=1, descending=True).values
    products = torch.ones(3, 5, dtype=torch.float64)
    for size in (24, 12, 5):
        products = products * best_first[:, :size].softmax(dim=1)[:, :5]  # P_j^{0:|S_i|}, as printed
    found = sir.conditional(levels, kept, there, "literal")[2]
    assert torch.allclose(found.exp(), products.softmax(dim=1), atol=1e-12)


@pytest.mark.parametrize(
    ("size", "cap", "floor", "uniform"),
    [(88, 0.0303, 4.4718, 5.4716), (48, 0.0547, 3.8613, 4.8607), (16, 0.1534, 2.7460, 3.7407), (8, 0.2797, 2.0341, 3.0142)],
)
def test_the_literal_product_bounds_the_probability_of_the_right_document(size, cap, floor, uniform):
    present = torch.ones(1, size, dtype=torch.bool)
    certain, equal = torch.zeros(1, size, dtype=torch.float64), torch.zeros(1, size, dtype=torch.float64)
    certain[0, 0] = 200.0
    (best,) = sir.conditional([sir.log_probabilities(certain, present)], [], [present], "literal")
    assert float(best[0, 0].exp()) == pytest.approx(cap, abs=5e-5)
    assert float(sir.block_loss(best, present)) == pytest.approx(floor, abs=5e-5)
    (even,) = sir.conditional([sir.log_probabilities(equal, present)], [], [present], "literal")
    assert float(sir.block_loss(even, present)) == pytest.approx(uniform, abs=5e-5)


@pytest.mark.parametrize("chain", ["literal", "log"])
def test_the_gradient_of_the_chain_is_right(chain):
    scores = SCORES[:, :9].clone().requires_grad_(requires_grad=True)

    def total(values):
        levels, kept, there = fast_levels(values, [5, 3])
        parts = zip(sir.conditional(levels, kept, there, chain), there, strict=True)
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


def test_a_wrong_document_that_is_certain_gives_no_infinity():
    scores = torch.tensor([[0.0, 500.0, 0.0]], requires_grad=True)
    loss = sir.block_loss(sir.log_probabilities(scores, torch.ones(1, 3, dtype=torch.bool)), torch.ones(1, 3, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(scores.grad).all()


def test_random_documents_have_no_anchor():
    assert sir.METHOD.settings({"variant": "random"})["anchor"] is False
    with pytest.raises(UsageError, match="no score of random documents"):
        sir.METHOD.settings({"variant": "random", "anchor": True})


@pytest.mark.parametrize("blocks", ["16,16", "8,16", "x", "", "88,1"])
def test_a_chain_that_does_not_fall_is_refused(blocks):
    with pytest.raises(UsageError, match="chain of block sizes"):
        sir.METHOD.settings({"blocks": blocks})
