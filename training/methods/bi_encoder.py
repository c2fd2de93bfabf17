"""The base of methods that train dense vectors, and the parameters that they share.

A model is one encoder for queries and documents, or two (`training.dense.model.Towers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.support import LazyModule
from termweave.training.methods.base import CardText, Method
from termweave.training.methods.parameters import Count, TrainingParameters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.term_weighting import Kind
    from termweave.training.data.sampler import Batch
    from termweave.training.dense.model import DenseInputs, TargetContext, Towers
    from termweave.training.methods.base import Parts, Say
    from termweave.training.mixture import DataPart
    from termweave.training.ranker import first_stage, teacher
    from termweave.training.setup import RunSetup
    from termweave.training.trainer.trainer import Fit
else:  # `termweave train --help` reads this file and needs neither torch nor numpy
    first_stage = LazyModule("termweave.training.ranker.first_stage")
    teacher = LazyModule("termweave.training.ranker.teacher")


@dataclass(frozen=True)
class DenseParameters(TrainingParameters):
    """The parameters of every method that trains vectors: all layers are trained by default."""

    heading: ClassVar[str] = "Encoder"
    towers: Annotated[
        Literal["one", "two", "query"],
        Setting("Encoders: one for both sides, two that begin alike, or two of which only that of queries is trained."),
    ] = "one"
    reinitialise: Annotated[int, Setting("Top layers that begin with random weights, as in plain BERT."), Ge(0), Le(1000)] = 0
    chunk: Annotated[Count, Setting("Texts whose activations are kept at a time (gradient caching); 0: the whole batch.")] = 32
    top_layers: int = -1
    batch: int = 32
    schedule: Literal["one-cycle", "linear", "constant"] = "linear"
    warmup: float = 0.1
    # What a method does that lacks the parameter of this name.
    candidates_from = "model"
    vectors = "unit"
    may_freeze = False

    def texts(self) -> tuple[int, int]:
        """Return how many queries and documents a step encodes at most, for ``--plan``."""
        raise NotImplementedError

    def rounds(self) -> int:
        """Return the number of fits of a run, for ``--plan``."""
        return 1


#: `DenseParameters.towers` of a method whose loss trains the encoder of documents, too.
BothTowers = Annotated[Literal["one", "two"], Setting("Encoders: one for both sides, or two that begin alike.")]


class BiEncoderMethod(Method):
    """A method that trains dense vectors; it adds parameters, the drawing of a batch, targets and the loss, which reads vectors (`encode`)."""

    kind = "dense"
    models = LazyModule("termweave.training.dense.model")

    def trained(self, model: Towers, settings: Any) -> Parts:
        """Return the towers that are trained; an untrained tower belongs in no checkpoint."""
        del settings
        towers = {"backbone": None if model.fixed_documents else model.backbone, "query_backbone": model.query_backbone}
        return {name: tower for name, tower in towers.items() if tower is not None}

    @classmethod
    def card(cls, manifest: Manifest) -> CardText:
        """Return the model card's sentences about the vectors, the encoders, and how close the exported graph is to the model."""
        parity = manifest.quantisation["parity"]
        encoders = "one encoder for documents, one for queries" if manifest.settings.get("query_folder") else "one encoder"
        return CardText(
            "A dense vector",
            (f"vectors of {manifest.dimension} numbers, {manifest.pooling} pooling, compared by cosine; {encoders}",),
            f"cosine of the vectors {parity['int8_cosine_mean']:.4f} on average, {parity['int8_cosine_min']:.4f} at least",
            measured="exact inner products, vectors as an index stores them",
            unrounded="float vectors",
        )

    def refuse(self, settings: Any, setup: RunSetup) -> None:
        """Raise an error for a file of candidates that is not there, and for a ranker that cannot teach."""
        del setup
        teacher.check(settings.teacher)
        first_stage.check(settings.candidates_from, "model")

    def inputs(self, part: DataPart, model: Towers, say: Say) -> DenseInputs:
        """Tokenise the texts, find hard negatives, and compute `targets`."""
        inputs: DenseInputs = self.models.training_inputs(part, model, self.targets, say)
        return inputs

    def targets(self, context: TargetContext) -> Any:
        """Compute what the loss compares with, such as soft labels, once before the first step."""
        del context

    def encode(self, fit: Fit, batch: Batch, side: Kind, rows: NDArray[np.int64]) -> Tensor:
        """Encode texts of the batch's data set as vectors (`Towers`), float32 ``(T, d)``, with gradients.

        Args:
            fit: The fit.
            batch: The batch.
            side: Queries or documents.
            rows: Indices into the training questions, or into the documents.
        """
        texts = batch.inputs.questions if side == "query" else batch.inputs.documents
        vectors: Tensor = fit.model.encode(side, texts, rows, fit.settings.chunk)
        return vectors
