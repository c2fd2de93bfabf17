"""CODER: targets against the golden cases and Algorithm 1, the list-wise loss against a slow transcription."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.training.dense.list_targets import program_labels  # noqa: E402
from termweave.training.methods import coder  # noqa: E402

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "labels"
CASES = [
    (file.stem, normalize, boost, keep)
    for file in sorted(GOLDEN.glob("*.npz"))
    for normalize in ("max-min", "std", None)
    for boost, keep in ((1.222, 4), (1.525, 32))
]


def test_the_worked_example_holds():
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
    with np.load(GOLDEN / f"{name}.npz") as file:
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
