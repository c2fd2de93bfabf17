"""The base of methods that train rankers, and the parameters that they share.

A ranker is a cross-encoder: it reads a question with each candidate of a first stage (`training.ranker.model.AnchoredRanker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.support import LazyModule
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import CardText, Method
from termweave.training.methods.parameters import Count, ParameterRecord, TrainingParameters

if TYPE_CHECKING:
    from torch import Tensor

    from termweave.encoders.manifest import Manifest
    from termweave.training.data.sampler import Batch
    from termweave.training.methods.base import Parts
    from termweave.training.ranker import first_stage
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup
    from termweave.training.trainer.trainer import Fit
else:  # `termweave train --help` reads this file and needs neither torch nor numpy
    first_stage = LazyModule("termweave.training.ranker.first_stage")


@dataclass(frozen=True)
class CandidateParameters(ParameterRecord):
    """The first stage, whose documents are reranked."""

    heading: ClassVar[str] = "Candidates"
    candidates_from: Annotated[str, Setting("First stage: hybrid, bm25, index:NAME, or a run of `evaluate --save`.")] = "hybrid"
    candidates: Annotated[int, Setting("Documents of the first stage that negatives are drawn from."), Ge(2), Le(10_000)] = 100
    reranked: Annotated[int, Setting("Reranked documents of a held-out question, to decide when to stop."), Ge(2), Le(1000)] = 30
    anchor: Annotated[bool, Setting("Begin as the first stage: add its score times a factor to a logit that begins at 0.")] = True


@dataclass(frozen=True)
class RankerParameters(CandidateParameters, TrainingParameters):
    """The parameters of every method that trains a ranker: all layers are trained by default."""

    heading: ClassVar[str] = "Cross-encoder"
    chunk: Annotated[Count, Setting("Pairs whose activations are kept at a time (gradient caching); 0: the whole batch.")] = 32
    top_layers: int = -1
    may_freeze = False

    def check(self) -> None:
        """Raise `UsageError` for a measure that no order of the reranked documents changes."""
        super().check()
        if self.measure == "recall@100" and self.reranked <= 100:
            raise UsageError(f"Reranking {self.reranked} documents does not change recall@100.", "Set reranked above 100.")

    def scored(self) -> int:
        """Return how many pairs a step scores, for ``--plan``."""
        raise NotImplementedError


class CrossEncoderMethod(Method):
    """The base of a method that trains a ranker: it adds its parameters, how the questions of a step are drawn, and a loss on the scores (`score`)."""

    kind = "ranker"
    models = LazyModule("termweave.training.ranker.model")

    def trained(self, model: AnchoredRanker, settings: Any) -> Parts:
        """Return the transformer, the classifier's head, and the weights of the anchor where there is one."""
        del settings
        anchor = {} if model.weights is None else {"anchor": model.weights}
        return {"backbone": model.backbone, "head": model.heads(), **anchor}

    @classmethod
    def card(cls, manifest: Manifest) -> CardText:
        """Return the model card's sentences about the anchor, and how close the exported graph is to the model."""
        parity = manifest.quantisation["parity"]
        anchor = ", ".join(f"{weight:.3g} x {name}" for name, weight in manifest.anchor.get("weights", {}).items())
        lines = (f"anchor: the logit plus {anchor} of the first stage",) if anchor else ()
        return CardText(
            "A score of a query with a document",
            ("cross-encoder with one logit, in the layout of sentence-transformers' CrossEncoder", *lines),
            f"rank correlation of the scores {parity['int8_rank_correlation']:.4f}",
            measured="the candidates of the first stage, reranked",
            unrounded="",
        )

    def refuse(self, settings: Any, setup: RunSetup) -> None:
        """Raise `UsageError` for a run file that is not there."""
        del setup
        first_stage.check(settings.candidates_from)

    def score(self, fit: Fit, batch: Batch, places: Tensor | None = None) -> Tensor:
        """Score documents of the blocks with gradients.

        Args:
            fit: The fit.
            batch: Its `drawn` are `Blocks`.
            places: Which documents of each block, int64 ``(B, m)``; None: all.

        Returns:
            float32 ``(B, m)``; 0 for an absent document.
        """
        inputs, documents, features = batch.inputs, batch.drawn.documents, batch.drawn.features
        if places is not None:
            chosen = places.cpu().numpy()
            documents = np.take_along_axis(documents, chosen, axis=1)
            features = np.take_along_axis(features, chosen[:, :, None], axis=1)
        pairs = []
        for question, block in zip(batch.drawn.questions.tolist(), documents, strict=True):
            texts = [inputs.documents[document] for document in block.tolist() if document >= 0]
            pairs += self.models.read(inputs.reader, inputs.pairs.questions[question], texts)
        present = documents >= 0
        scores = fit.model(pairs, features[present], fit.settings.chunk)
        where = torch.from_numpy(np.flatnonzero(present)).to(scores.device)
        placed: Tensor = scores.new_zeros(present.size).index_put((where,), scores).reshape(present.shape)
        return placed
