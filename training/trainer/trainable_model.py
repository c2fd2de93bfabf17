"""The trained part of a model: its parameters, those that only training needs, and the method's loss of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from termweave.training.data.sampler import BatchSampler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from termweave.training.data.sampler import Batch, TrainingInputs
    from termweave.training.methods.base import TrainingMethod


class TrainableModel(nn.Module):
    """The trained parameters of a model, those that only training needs, and the method's loss.

    A family derives its own class, which registers what it trains beside the backbone and encodes the texts of a batch for the method's loss.

    Attributes:
        method: Whose `loss` is minimised.
        model: The whole model; it is no submodule, because a frozen backbone belongs in no checkpoint.
        inputs: What batches are drawn from, of the family's own type.
        settings: Of the method, as they hold for this fit.
        trains_backbone: Whether layers of the backbone are trained.
    """

    def __init__(self, method: TrainingMethod, model: Any, inputs: Sequence[TrainingInputs], settings: Any) -> None:
        """Register the backbone, where it is trained, and the method's extra modules."""
        super().__init__()
        self.method, self.settings = method, settings
        self.inputs: Sequence[Any] = list(inputs)
        object.__setattr__(self, "model", model)  # hidden from torch
        self.trains_backbone = settings.top_layers != 0
        if self.trains_backbone:
            self.backbone = model.backbone
        for name, extra in method.extras(model, settings).items():
            setattr(self, name, extra)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch under "loss", and its parts, detached, under their names."""
        parts = self.method.loss(self, batch)
        return {"loss": torch.stack(list(parts.values())).sum(), **{name: part.detach() for name, part in parts.items()}}

    def batches(self) -> BatchSampler:
        """The batches of the fit, in order; a family whose batches are of another kind returns its own."""
        return BatchSampler(self.inputs, self.settings)

    def backbone_precision(self) -> AbstractContextManager[Any]:
        """Context in which the backbone is run: bf16 where the setting `precision` and the device have it.

        Only the backbone computes in bf16. Losses stay in float32: scores near 30 are an eighth apart in bf16.
        """
        device = next(self.parameters()).device
        wanted = self.settings.precision
        able = device.type == "cuda" and torch.cuda.is_bf16_supported()
        enabled = wanted == "bf16" or (wanted == "auto" and able)
        context: AbstractContextManager[Any] = torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
        return context
