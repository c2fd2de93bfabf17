"""The trained part of a term-weight model: compute the inputs of the heads and the term weights for the texts of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from termweave.encoders.models.joint_model import masked_mean, pooled
from termweave.training.backbone.loading import attend_by_sdpa
from termweave.training.term_weights.batch import BatchSide, HeadInputs, vocabulary_of
from termweave.training.trainer.trainable_model import TrainableModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.training.data.sampler import Batch
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.term_weights.declaration import TermWeightParameters
    from termweave.training.term_weights.inputs import TermWeightInputs


class TrainableHeads(TrainableModel):
    """The heads, the backbone if it is trained, and the loss of a method.

    Attributes:
        heads: The document head and the query head.
    """

    inputs: Sequence[TermWeightInputs]

    def __init__(
        self,
        method: TrainingMethod,
        model: JointModel,
        inputs: Sequence[TermWeightInputs],
        settings: TermWeightParameters,
    ) -> None:
        super().__init__(method, model, inputs, settings)
        self.heads = model.heads
        if self.trains_backbone and not torch.cuda.is_available():  # on a GPU its gradients may differ from run to run
            attend_by_sdpa(model.backbone)

    def sides(self, batch: Batch, *, everything: bool) -> tuple[BatchSide, BatchSide]:
        """Return the questions and the documents of a batch; with `everything` all pieces, not only those of the questions' terms."""
        vocabulary = vocabulary_of(self.inputs[batch.collection].questions, batch.questions)
        return (
            self.side(batch, batch.questions, vocabulary, "query", everything=everything),
            self.side(batch, batch.documents, vocabulary, "document", everything=everything),
        )

    def side(
        self, batch: Batch, texts: NDArray[np.int64], vocabulary: Mapping[str, int], kind: Kind, *, everything: bool
    ) -> BatchSide:
        """Return the questions or the documents of a batch, on the device of the parameters."""
        prepared = self.inputs[batch.collection].prepared(kind)
        return BatchSide(prepared, texts, vocabulary, kind, everything=everything, device=next(self.heads.parameters()).device)

    def encode(self, batch: Batch, side: BatchSide) -> tuple[HeadInputs, Tensor | None]:
        """Return the states that the heads read, and dense vectors; a frozen backbone gives cached states and no vectors."""
        if self.trains_backbone:
            return self._pass(side)
        states = self.inputs[batch.collection].states(side.kind)
        assert states is not None
        return side.cached(states, gated=self.heads.document.gated), None

    def features(self, side: BatchSide, states: HeadInputs) -> Tensor:
        """Compute the inputs of the head's last layer for the chosen pieces, ``(P, width)``."""
        return side.inner(self.heads.head(side.kind), states)

    def ungated_features(self, side: BatchSide, states: HeadInputs, gated: Tensor) -> Tensor:
        """Compute these inputs before the feature gate; return `gated` if the head has no gate. For a linear head it is H of FecTek's Eq. 3."""
        head = self.heads.head(side.kind)
        return side.inner(head, states, gate=False) if head.gated else gated

    def logits(self, side: BatchSide, features: Tensor) -> Tensor:
        """Compute the logit of each piece: ``(P, width) -> (P,)``."""
        logits: Tensor = self.heads.head(side.kind).outer(features).squeeze(-1)
        return logits

    def weights(self, side: BatchSide, features: Tensor) -> Tensor:
        """Compute the weights of the terms in the batch's questions: ``(P, width) -> (T, V)``."""
        return side.weights(self.logits(side, features))

    def distance_to_start(self, batch: Batch, side: BatchSide, vectors: Tensor) -> Tensor:
        """Compute the mean cosine distance between vectors and the vectors of the backbone before training."""
        states = self.inputs[batch.collection].states(side.kind)
        assert states is not None
        original = torch.from_numpy(states.pooled(self.model.pooling)[side.texts, -vectors.shape[1] :]).to(vectors)
        return (1.0 - (vectors * nn.functional.normalize(original, dim=-1)).sum(dim=-1)).mean()

    def _pass(self, side: BatchSide) -> tuple[HeadInputs, Tensor]:
        ids, mask, features = side.padded()
        with self.backbone_precision():
            lower, last = self.model.states(ids, mask, features)
        lower, last = lower.float(), last.float()
        both = torch.cat((lower, last), dim=-1) if self.model.shape.lower else last
        return side.live(both, masked_mean(both, mask)), pooled(last, mask, self.model.pooling)
