"""Averages of parameters that are evaluated and saved: the running mean of the steps (``ema``), mixed with the start (``keep``)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import nn

_FILE, _BEGUN = "average.safetensors", "begun.safetensors"


class Average:
    """``mean <- d * mean + (1 - d) * parameters`` after every step, d = min(decay, (1 + step) / (10 + step)).

    The small d at the start forgets the initial parameters (Abadi et al. 2016, tf.train.ExponentialMovingAverage). A running mean
    ranks more steadily than any one step. A decay of 0 switches it off.

    ``keep * begun + (1 - keep) * mean`` is applied: models between the start and the fine-tuned one are nearly as good on both data
    sets (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").
    """

    def __init__(self, module: nn.Module, decay: float, keep: float = 0.0) -> None:
        self._module, self._decay, self._keep = module, decay, keep
        begun = {name: each.detach().clone() for name, each in self._parameters().items()} if decay or keep else {}
        self._begun = begun if keep else {}
        self._means = dict(begun) if decay else {}

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self._module.named_parameters() if each.requires_grad}

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def update(self, step: int) -> None:
        """Update the running mean with the parameters after a step."""
        new = 1.0 - min(self._decay, (1 + step) / (10 + step))
        current = self._parameters()
        for name, mean in self._means.items():
            self._means[name] = mean.to(current[name]).lerp(current[name].detach(), new)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the module has the averaged parameters; afterwards it has its own again."""
        with torch.no_grad():
            current = self._parameters()
            before = {name: current[name].detach().clone() for name in {**self._means, **self._begun}}
            for name, mean in self._means.items():
                current[name].copy_(mean)
            for name, begun in self._begun.items():
                current[name].lerp_(begun.to(current[name]), self._keep)
            try:
                yield
            finally:
                for name, value in before.items():
                    current[name].copy_(value)

    def save(self, folder: Path) -> None:
        """Write the averages into a checkpoint's folder."""
        from safetensors.torch import save_file  # noqa: PLC0415

        for file, kept in ((_FILE, self._means), (_BEGUN, self._begun)):  # the model begun with may be another one by then
            save_file({name: each.contiguous().cpu() for name, each in kept.items()}, folder / file)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        from safetensors.torch import load_file  # noqa: PLC0415

        self._means = load_file(folder / _FILE)
        self._begun = load_file(folder / _BEGUN) if self._begun else {}
