"""The setting `keep`: a share of the model that training started from is kept in the parameters that are evaluated and saved."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import nn

_FILE = "begun.safetensors"


class KeptStart:
    """``keep * start + (1 - keep) * parameters`` of a module.

    Models between the start and the fine-tuned one are nearly as good on both data sets (Wortsman et al. 2022, "Robust fine-tuning of
    zero-shot models").
    """

    def __init__(self, module: nn.Module, keep: float) -> None:
        self._module, self._keep = module, keep
        self._start = {name: each.detach().clone() for name, each in self._parameters().items()} if keep else {}

    def _parameters(self) -> dict[str, torch.Tensor]:
        return {name: each for name, each in self._module.named_parameters() if each.requires_grad}

    @contextmanager
    def mixed_in(self) -> Iterator[None]:
        """Context in which the module has the mixed parameters; afterwards it has its own again."""
        with torch.no_grad():
            current = self._parameters()
            before = {name: current[name].detach().clone() for name in self._start}
            for name, start in self._start.items():
                current[name].lerp_(start.to(current[name]), self._keep)
            try:
                yield
            finally:
                for name, value in before.items():
                    current[name].copy_(value)

    def save(self, folder: Path) -> None:
        """Write the start into a checkpoint's folder: a resumed run may begin with another model."""
        from safetensors.torch import save_file  # noqa: PLC0415

        if self._start:
            save_file({name: each.contiguous().cpu() for name, each in self._start.items()}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        from safetensors.torch import load_file  # noqa: PLC0415

        if self._start:
            self._start = load_file(folder / _FILE)
