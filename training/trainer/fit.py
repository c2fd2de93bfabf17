"""One fit: the parts of a model that are trained, those that only training needs, and the method's loss of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from termweave.training.data.sampler import BatchSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.training.data.sampler import Batch, TrainingInputs
    from termweave.training.methods.base import Method


class Fit(nn.Module):
    """The trained parameters of a model, those that only training needs, and the method's loss.

    Attributes:
        method: Whose `loss` is minimised.
        model: The whole model; it is not a submodule, because a frozen backbone belongs in no checkpoint.
        inputs: What batches are drawn from, of each data set.
        settings: Of the method, as they hold for this fit.
    """

    def __init__(self, method: Method, model: Any, inputs: Sequence[TrainingInputs], settings: Any) -> None:
        """Register the parts by their names."""
        super().__init__()
        self.method, self.inputs, self.settings = method, list(inputs), settings
        object.__setattr__(self, "model", model)  # hidden from torch
        trained = dict(method.trained(model, settings))
        first = {"backbone": trained.pop("backbone")} if "backbone" in trained else {}
        # A checkpoint stores the optimiser's state by position, in this order.
        for name, part in {**first, **method.extras(model, settings), **trained}.items():
            setattr(self, name, part)

    @property
    def device(self) -> torch.device:
        """Where the trained parameters are."""
        return next(self.parameters()).device

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch under "loss", and its parts, detached, under their names."""
        parts = self.method.loss(self, batch)
        return {"loss": torch.stack(list(parts.values())).sum(), **{name: part.detach() for name, part in parts.items()}}

    def batches(self) -> BatchSampler:
        """The batches of the fit, in order."""
        return BatchSampler(self.method, self.inputs, self.settings)

    def train(self, mode: bool = True) -> Fit:  # noqa: FBT001, FBT002 - torch's signature
        """Switch dropout on or off, in the parts that are not trained, too."""
        super().train(mode)
        self.model.train(mode)
        return self
