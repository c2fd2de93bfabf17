"""Hard negatives that are mined again during training: their files, and the batches that they serve for."""

from types import SimpleNamespace

import numpy as np

from termweave.training.data.pairs import Pairs
from termweave.training.dense import mined_negatives
from termweave.training.dense.inputs import DenseBatchSampler, DenseInputs, TokenIds

NOTHING = TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))


def test_what_was_mined_before_a_step_is_read_again(tmp_path):
    lists = {step: [[np.array([step, 1]), np.zeros(0, np.int64), np.array([2])], []] for step in (2, 4, 6, 8)}
    for step, each in lists.items():
        mined_negatives.save(tmp_path, step, each)
    found = mined_negatives.read(tmp_path, 7)
    assert sorted(found) == [4, 6]
    assert [each.tolist() for each in found[6][0]] == [[6, 1], [], [2]]
    assert found[6][1] == []
    assert mined_negatives.read(tmp_path, 1) == {}


def test_negatives_serve_from_the_second_batch_after_the_step_that_mined_them():
    """Trainer draws one batch ahead, so that the first batch after a step is drawn before the step ends."""
    inputs = DenseInputs(1.0, Pairs(["q"], [frozenset({0})]), [np.array([1])], NOTHING, NOTHING)
    method = SimpleNamespace(draw=lambda inputs, *_: inputs.negatives[0].tolist())
    refreshed = {2: [[np.array([2])]], 4: [[np.array([4])]]}
    for accumulate, expected in ((1, [1, 1, 1, 2, 2, 4, 4]), (2, [1, 1, 1, 1, 1, 2, 2, 2, 2, 4])):
        sampler = DenseBatchSampler(method, [inputs], {"seed": 0, "steps": 9, "accumulate": accumulate}, refreshed)
        assert [sampler.draw(number).drawn[0] for number in range(len(expected))] == expected
