"""Dropout on processors: the same distribution as torch's, other random numbers."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
from torch.nn.functional import dropout, scaled_dot_product_attention  # noqa: E402

from termweave.training.trainer.passes import CpuDropout  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_a_share_of_p_is_dropped_and_the_rest_scaled(dtype, p):
    values = torch.ones(7, 11_111, dtype=dtype, requires_grad=True)
    torch.manual_seed(0)
    with CpuDropout():
        first, second = dropout(values, p), dropout(values, p)
        torch.manual_seed(0)
        again = dropout(values, p)
        assert dropout(values, p, training=False) is values
        assert not dropout(values, 1.0).any()
    assert set(first.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - p), dtype=dtype))}
    assert abs(float((first == 0).float().mean()) - p) < 5 * math.sqrt(p * (1 - p) / values.numel())
    assert torch.equal(first, again)
    # Independent of the draw before, and of the elements beside: both are dropped in p^2 of the places.
    for other in (second, first.roll(1), first.roll(1, dims=0)):
        assert float(((first == 0) & (other == 0)).float().mean()) == pytest.approx(p * p, abs=0.01)
    first.sum().backward()
    assert torch.equal(values.grad, first)


@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_is_that_of_torch_where_nothing_is_dropped(mask):
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 2, 4, 9, 8)
    read = torch.arange(9) < torch.tensor([[9], [6]])
    masks = {None: None, "bool": read[:, None, None], "float": torch.zeros(2, 1, 1, 9).masked_fill(~read[:, None, None], -1e9)}
    with CpuDropout():
        own = scaled_dot_product_attention(query, key, value, masks[mask], dropout_p=1e-9)
        dropped = scaled_dot_product_attention(query, key, value, masks[mask], dropout_p=0.5)
    assert torch.allclose(own, scaled_dot_product_attention(query, key, value, masks[mask]), atol=1e-6)
    assert not torch.allclose(own, dropped, atol=1e-2)


def test_a_text_without_a_token_is_not_nan():
    with CpuDropout():
        states = scaled_dot_product_attention(
            *torch.ones(3, 1, 1, 2, 4), torch.zeros(1, 1, 1, 2, dtype=torch.bool), dropout_p=0.1
        )
    assert states.isfinite().all()
