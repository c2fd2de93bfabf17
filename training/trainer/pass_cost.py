"""What one pass of a model costs on this machine, measured: seconds forwards and backwards, and the bytes of its activations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from termweave.training.trainer.cpu_dropout import CpuDropout

if TYPE_CHECKING:
    from collections.abc import Callable


def parameter_bytes(model: torch.nn.Module) -> int:
    """Count the bytes of all parameters, and of those that are trained also their gradients and the two moments of AdamW, in float32."""
    return sum(4 * each.numel() * (4 if each.requires_grad else 1) for each in model.parameters())


def pass_cost(model: torch.nn.Module, compute: Callable[[], torch.Tensor]) -> tuple[float, int]:
    """Compute twice as the training loop does, forwards and where something is trained backwards, and measure the second time.

    Args:
        model: The model; its parameters do not count as activations.
        compute: One pass; what it returns is summed and differentiated.

    Returns:
        Seconds, and the bytes of the tensors that are kept for the pass backwards.
    """
    bytes_of: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        bytes_of[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    parameters = {each.untyped_storage().data_ptr() for each in model.parameters()}
    for attempt in range(2):  # the first one warms up
        begun = time.monotonic()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor), CpuDropout():
            computed = compute()
        if computed.requires_grad:
            computed.sum().backward()
        if not attempt:
            bytes_of.clear()
    seconds = time.monotonic() - begun
    return seconds, sum(size for place, size in bytes_of.items() if place not in parameters)
