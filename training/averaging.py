"""The running mean of the parameters, which ranks more steadily than the parameters of any one step (``--set ema=...``)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import nn

_FILE = "average.safetensors"


class Average:
    """``mean <- d * mean + (1 - d) * parameters`` after every step, d = min(decay, (1 + step) / (10 + step)).

    The small d at the start forgets where the parameters began (Abadi et al. 2016, tf.train.ExponentialMovingAverage). With a
    decay of 0 there is no mean, and everything here does nothing.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module, self._decay = module, decay
        self._means = {name: each.detach().clone() for name, each in self._parameters().items()} if decay else {}

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self._module.named_parameters() if each.requires_grad}

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def update(self, step: int) -> None:
        """Take in the parameters after a step."""
        new = 1.0 - min(self._decay, (1 + step) / (10 + step))
        current = self._parameters()
        for name, mean in self._means.items():
            self._means[name] = mean.to(current[name]).lerp(current[name].detach(), new)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module's parameters are the mean within, and what they were afterwards."""
        with torch.no_grad():
            current = self._parameters()
            kept = {name: current[name].detach().clone() for name in self._means}
            for name, mean in self._means.items():
                current[name].copy_(mean)
            try:
                yield
            finally:
                for name, each in kept.items():
                    current[name].copy_(each)

    def save(self, folder: Path) -> None:
        """Beside a checkpoint."""
        from safetensors.torch import save_file  # noqa: PLC0415

        save_file({name: mean.contiguous().cpu() for name, mean in self._means.items()}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """The inverse of `save`."""
        from safetensors.torch import load_file  # noqa: PLC0415

        self._means = load_file(folder / _FILE)
