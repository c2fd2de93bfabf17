"""The objective of dense methods: from the texts of a batch to vectors, with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from termweave.training.dense import mined_negatives
from termweave.training.dense.inputs import DenseBatchSampler
from termweave.training.trainer.objective import Objective

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.training.dense.declaration import DenseMethod
    from termweave.training.dense.inputs import DenseBatch, DenseInputs
    from termweave.training.dense.model import Side, Towers


class DenseObjective(Objective):
    """The towers that are trained, and a method's loss."""

    inputs: list[DenseInputs]
    model: Towers

    def __init__(self, method: DenseMethod, model: Towers, inputs: Sequence[DenseInputs], settings: Mapping[str, Any]) -> None:
        super().__init__(method, model, inputs, settings)
        if model.query_backbone is not None:
            self.query_backbone = model.query_backbone
        if model.fixed_documents:
            del self.backbone  # a tower that is not trained belongs in no checkpoint
        model.precision = self.backbone_precision
        self._refreshed: dict[int, list[list[NDArray[np.int64]]]] = {}

    def batches(self) -> DenseBatchSampler:
        """The method's own batches."""
        return DenseBatchSampler(cast("DenseMethod", self.method), self.inputs, self.settings, self._refreshed)

    def after_step(self, step: int, home: Path) -> None:
        """Mine the hard negatives again where the setting `refresh_every` says so, and keep them beside the checkpoints."""
        every = int(self.settings.get("refresh_every", 0))
        if not every or step % every or step >= int(self.settings["steps"]):
            return
        self._refreshed[step] = [inputs.mine() for inputs in self.inputs]
        mined_negatives.save(home, step, self._refreshed[step])
        for old in sorted(self._refreshed)[:-2]:  # the batch that is drawn ahead may still need the one before
            del self._refreshed[old]

    def resume(self, step: int, home: Path) -> None:
        """Read the hard negatives that were mined last before a step."""
        self._refreshed.update(mined_negatives.read(home, step))

    def train(self, mode: bool = True) -> DenseObjective:  # noqa: FBT001, FBT002 - torch's signature
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
        return self.model.encode(side, texts, rows, int(self.settings["chunk"]))
