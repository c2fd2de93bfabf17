"""The trained part of a dense model: from the texts of a batch to vectors, with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.training.dense.inputs import DenseBatchSampler
from termweave.training.trainer.trainable_model import TrainableModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.training.dense.declaration import DenseParameters
    from termweave.training.dense.inputs import DenseBatch, DenseInputs
    from termweave.training.dense.model import Side, Towers
    from termweave.training.methods.base import TrainingMethod


class TrainableTowers(TrainableModel):
    """The towers that are trained, and a method's loss."""

    inputs: list[DenseInputs]
    model: Towers

    def __init__(self, method: TrainingMethod, model: Towers, inputs: Sequence[DenseInputs], settings: DenseParameters) -> None:
        super().__init__(method, model, inputs, settings)
        if model.query_backbone is not None:
            self.query_backbone = model.query_backbone
        if model.fixed_documents:
            del self.backbone  # a tower that is not trained belongs in no checkpoint
        model.precision = self.backbone_precision

    def batches(self) -> DenseBatchSampler:
        """The method's own batches."""
        return DenseBatchSampler(self.method, self.inputs, self.settings)

    def train(self, mode: bool = True) -> TrainableTowers:  # noqa: FBT001, FBT002 - torch's signature
        """Switch dropout on or off, in the towers too."""
        super().train(mode)
        self.model.train(mode)
        return self

    def encode(self, batch: DenseBatch, side: Side, rows: NDArray[np.int64]) -> Tensor:
        """Encode texts of the batch's data set as vectors (`Towers`), float32 ``(T, d)``, with gradients.

        Args:
            batch: The batch.
            side: Queries or documents.
            rows: Indices into the training questions, or into the documents.
        """
        inputs = self.inputs[batch.collection]
        texts = inputs.questions if side == "query" else inputs.documents
        return self.model.encode(side, texts, rows, self.settings.chunk)
