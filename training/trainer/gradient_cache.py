"""Gradient caching: passes whose activations are computed again when their gradients are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from termweave.training.trainer.cpu_dropout import CpuDropout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class CachedPasses(torch.autograd.Function):
    """Several passes whose activations are computed again when their gradients are wanted, one pass at a time.

    `torch.utils.checkpoint` computes the same, but keeps two to three times as much memory between the passes (torch 2.15).
    Both passes enter `CpuDropout` themselves: torch leaves such a context while it computes gradients.
    """

    @staticmethod
    def forward(context: Any, anchor: Tensor, device: torch.device, passes: Sequence[Callable[[], Tensor]]) -> Tensor:
        """Run the passes without gradients; `anchor` makes autograd call `backward`."""
        del anchor
        context.passes, context.device, context.states = passes, device, []
        vectors = []
        for encode in passes:
            context.states.append(_random_state(device))
            with CpuDropout():
                vectors.append(encode())
        context.sizes = [len(each) for each in vectors]
        return torch.cat(vectors)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Add the gradients of each pass to those of the parameters."""
        for encode, state, gradient in zip(context.passes, context.states, gradients[0].split(context.sizes), strict=True):
            devices = [context.device] if context.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices), torch.enable_grad(), CpuDropout():
                _set_random_state(context.device, state)  # dropout drops what it dropped before
                encode().backward(gradient)
        return None, None, None


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(device: torch.device, state: tuple[Tensor, Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
