"""The trained part of a ranker: from the blocks of a batch to logits, with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from termweave.training.ranker.inputs import RankerBatchSampler
from termweave.training.ranker.model import read
from termweave.training.trainer.trainable_model import TrainableModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from termweave.training.methods.base import TrainingMethod
    from termweave.training.ranker.declaration import RankerParameters
    from termweave.training.ranker.inputs import RankerBatch, RankerInputs
    from termweave.training.ranker.model import AnchoredRanker


class TrainableRanker(TrainableModel):
    """The ranker that is trained, and a method's loss."""

    inputs: list[RankerInputs]
    model: AnchoredRanker

    def __init__(
        self, method: TrainingMethod, model: AnchoredRanker, inputs: Sequence[RankerInputs], settings: RankerParameters
    ) -> None:
        super().__init__(method, model, inputs, settings)
        self.head = model.heads()
        if model.weights is not None:
            self.anchor = model.weights
        model.precision = self.backbone_precision

    @property
    def device(self) -> torch.device:
        """Where pairs are scored."""
        return self.model.device

    def batches(self) -> RankerBatchSampler:
        """Blocks of a right document and wrong ones."""
        return RankerBatchSampler(self.inputs, self.settings)

    def train(self, mode: bool = True) -> TrainableRanker:  # noqa: FBT001, FBT002 - torch's signature
        """Switch dropout on or off, in the classifier too."""
        super().train(mode)
        self.model.train(mode)
        return self

    def score(self, batch: RankerBatch, places: Tensor | None) -> Tensor:
        """Score documents of the blocks with gradients.

        Args:
            batch: The blocks.
            places: Which documents of each block, int64 ``(B, m)``; None: all.

        Returns:
            float32 ``(B, m)``; 0 for an absent document.
        """
        inputs, documents, features = self.inputs[batch.collection], batch.documents, batch.features
        if places is not None:
            chosen = places.cpu().numpy()
            documents = np.take_along_axis(documents, chosen, axis=1)
            features = np.take_along_axis(features, chosen[:, :, None], axis=1)
        pairs = []
        for question, block in zip(batch.questions.tolist(), documents, strict=True):
            texts = [inputs.documents[document] for document in block.tolist() if document >= 0]
            pairs += read(inputs.reader, inputs.questions[question], texts)
        present = documents >= 0
        scores = self.model(pairs, features[present], self.settings.chunk)
        where = torch.from_numpy(np.flatnonzero(present)).to(scores.device)
        return scores.new_zeros(present.size).index_put((where,), scores).reshape(present.shape)
