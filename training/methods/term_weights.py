"""The base of methods that train term weights, and the parameters that they share.

A model is a head on the hidden states of a backbone: of a frozen one, which are computed once (`training.term_weights.hidden_states`), or of
passes that train its layers, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from termweave.declared_settings import Setting
from termweave.support import LazyModule
from termweave.training.data.arrays import torch
from termweave.training.methods.base import CardText, Method
from termweave.training.methods.parameters import Depth, ParameterRecord, TrainingParameters

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.encoders import term_weighting
    from termweave.encoders.manifest import Manifest
    from termweave.encoders.models import joint_model
    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Form, Kind
    from termweave.training import backbone_model
    from termweave.training.data import sampler, teacher_scores
    from termweave.training.data.sampler import AnsweredQuestions, Batch
    from termweave.training.methods.base import Parts, Questions, Say
    from termweave.training.ranker import teacher
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights import batch as sides
    from termweave.training.term_weights import inspection
    from termweave.training.term_weights.batch import BatchSide, HeadInputs
    from termweave.training.term_weights.inspection import Inspection
    from termweave.training.trainer import passes
    from termweave.training.trainer.trainer import Fit
else:  # `termweave train --help` reads this file and needs neither torch nor numpy
    joint_model = LazyModule("termweave.encoders.models.joint_model")
    term_weighting = LazyModule("termweave.encoders.term_weighting")
    backbone_model = LazyModule("termweave.training.backbone_model")
    sampler = LazyModule("termweave.training.data.sampler")
    teacher_scores = LazyModule("termweave.training.data.teacher_scores")
    teacher = LazyModule("termweave.training.ranker.teacher")
    sides = LazyModule("termweave.training.term_weights.batch")
    inspection = LazyModule("termweave.training.term_weights.inspection")
    passes = LazyModule("termweave.training.trainer.passes")

#: The value of `start` that needs no other model.
ANCHOR = "anchor"
#: Parameters that determine the shape of the heads -> their names in a manifest.
_SHAPE = {
    **{name: name for name in ("hidden", "shared", "terms", "query", "tf_power")},
    "fcm": "gate",
    "bmes": "tags",
    "anchor": "kind",
}
#: Parameters of a shape that a manifest holds as 0 or 1.
_FLAGS = ("shared", "fcm", "bmes")


@dataclass(frozen=True)
class HeadParameters(ParameterRecord):
    """The outputs of the model, and the shape of its heads."""

    heading: ClassVar[str] = "Term-weight head"
    outputs: Annotated[Literal["weights", "weights,dense"], Setting("Term weights, or also a vector.")] = "weights,dense"
    terms: Annotated[Literal["word", "piece"], Setting("What gets weights: words (jieba's in Chinese), or word-pieces.")] = "word"
    hidden: Annotated[Depth, Setting("Width of the head's hidden layer; 0: a linear head on the last layer, as in papers.")] = 128
    shared: Annotated[bool, Setting("One head for documents and queries, as in the papers.")] = False


@dataclass(frozen=True)
class StartParameters(ParameterRecord):
    """The model that a run starts from."""

    heading: ClassVar[str] = "Start"
    start: Annotated[
        str,
        Setting(
            "Where the heads start: at the anchor, or at the heads of a model on the same backbone (folder or name), whose shape is the default."
        ),
    ] = ANCHOR
    keep: Annotated[float, Setting("With start=MODEL: its share in the parameters that are saved."), Ge(0), Le(0.95)] = 0.0

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Take the shape of the heads from the model to start from."""
        return super().derived(changed) | _shape_of(str(changed.get("start", ANCHOR)).strip())


def _shape_of(name: str) -> dict[str, object]:
    """Return the parameters that the heads of a model were trained with."""
    if name == ANCHOR:
        return {}
    from termweave.encoders.kinds import read_folder  # noqa: PLC0415 - only needed with start=MODEL
    from termweave.encoders.model_lookup import resolve  # noqa: PLC0415

    manifest = read_folder(resolve(name), check=False).manifest
    described = {**manifest.heads, **manifest.anchor, "terms": manifest.terms}
    shape = {parameter: described[key] for parameter, key in _SHAPE.items() if described.get(key) not in (None, "")}
    return {parameter: bool(value) if parameter in _FLAGS else value for parameter, value in shape.items()}


@dataclass(frozen=True)
class TermWeightParameters(HeadParameters, StartParameters, TrainingParameters):
    """The parameters of every method that trains term weights."""

    # What a method does that lacks the parameter of this name.
    fcm = False
    bmes = False

    def form(self) -> Form:
        """Return the form of weights: how logits become weights."""
        raise NotImplementedError

    def texts(self) -> tuple[int, int]:
        """Return how many questions and documents a step reads, for ``--plan``."""
        raise NotImplementedError


#: The formula of each activation, and what the card adds where a model gives vectors, too.
_MULTIPLIER = {"softplus": "softplus(z + ln(e - 1))", "log": "log(1 + ReLU(z))", "linear": "max(z, 0)"}
_COSINES = ", cosine of the vectors {int8_cosine_mean:.4f} on average, {int8_cosine_min:.4f} at least"


class TermWeightMethod(Method):
    """A method that trains term weights; it adds parameters and the loss.

    A loss reads the questions and documents of a batch as `BatchSide` (`side`, `both_sides`), from them states (`encode`), from these the inputs
    of the head's last layer (`features`), and from these `logits` or `weights`.
    """

    kind = "anchored"
    models = LazyModule("termweave.training.term_weights.model")

    def trained(self, model: JointModel, settings: Any) -> Parts:
        """Return the document head and the query head, and the backbone where its layers are trained."""
        if settings.top_layers == 0:
            return {"heads": model.heads}
        if not torch.cuda.is_available():  # on a GPU its gradients may differ from run to run
            backbone_model.attend_by_sdpa(model.backbone)
        return {"backbone": model.backbone, "heads": model.heads}

    @classmethod
    def card(cls, manifest: Manifest) -> CardText:
        """Return the model card's sentences about the outputs, the formula of a weight, and how close the exported graph is to the model."""
        dense = "dense" in manifest.outputs
        parity = manifest.quantisation["parity"]
        cosines = _COSINES.format(**parity) if dense else ""
        return CardText(
            "Term weights and a dense vector" if dense else "Term weights",
            (f"weight of a term: {formula(manifest.anchor)}",),
            f"rank correlation of the multipliers {parity['int8_rank_correlation']:.4f}{cosines}",
        )

    def refuse(self, settings: Any, setup: RunSetup) -> None:
        """Raise an error for a teacher that cannot be used: a file of scores, or a ranker."""
        teacher.check(settings.teacher)
        teacher_scores.written(settings.teacher, setup)

    def draw(self, inputs: Any, settings: Any, generator: np.random.Generator, questions: Questions) -> AnsweredQuestions:
        """Draw a relevant document of each question, and hard negatives."""
        return sampler.AnsweredQuestions.draw(questions(), inputs.pairs.relevant, inputs.negatives, settings.drawn, generator)

    def inspect(self, folder: Path, spec: str, settings: Any, say: Say) -> Inspection:
        """Weigh sample passages with a trained model (`term_weights.inspection`)."""
        say("Weighing sample passages with the new model")
        return inspection.inspect(folder, spec, settings)

    # -- What a loss is made of ------------------------------------------------------------------------------------------------------

    def both_sides(self, fit: Fit, batch: Batch, *, everything: bool) -> tuple[BatchSide, BatchSide]:
        """Return the questions and the documents of a batch; with `everything` all pieces, not only those of the questions' terms."""
        questions, documents = batch.drawn.questions, batch.drawn.documents
        vocabulary = sides.vocabulary_of(batch.inputs.questions, questions)
        return (
            self.side(fit, batch, questions, vocabulary, "query", everything=everything),
            self.side(fit, batch, documents, vocabulary, "document", everything=everything),
        )

    def side(
        self, fit: Fit, batch: Batch, texts: NDArray[np.int64], vocabulary: Mapping[str, int], kind: Kind, *, everything: bool
    ) -> BatchSide:
        """Return some questions or documents of the batch's data set, on the device of the parameters."""
        return sides.BatchSide(batch.inputs.prepared(kind), texts, vocabulary, kind, everything=everything, device=fit.device)

    def encode(self, fit: Fit, side: BatchSide) -> tuple[HeadInputs, Tensor | None]:
        """Return the states that the heads read, and dense vectors; a frozen backbone gives cached states and no vectors."""
        if fit.settings.top_layers == 0:
            return side.cached(gated=fit.model.heads.document.gated), None
        ids, mask, features = side.padded()
        with passes.backbone_precision(fit.device, fit.settings.precision):
            lower, last = (each.float() for each in fit.model.states(ids, mask, features))
        both = torch.cat((lower, last), dim=-1) if fit.model.shape.lower else last
        return side.live(both, joint_model.masked_mean(both, mask)), joint_model.pooled(last, mask, fit.model.pooling)

    def features(self, fit: Fit, side: BatchSide, states: HeadInputs) -> Tensor:
        """Compute the inputs of the head's last layer for the chosen pieces, ``(P, width)``."""
        return side.inner(_head(fit, side), states)

    def ungated_features(self, fit: Fit, side: BatchSide, states: HeadInputs, gated: Tensor) -> Tensor:
        """Compute the inputs of the head's last layer before the feature gate; without a gate return `gated`. For a linear head: H of FecTek's Eq. 3."""
        head = _head(fit, side)
        return side.inner(head, states, gate=False) if head.gated else gated

    def logits(self, fit: Fit, side: BatchSide, features: Tensor) -> Tensor:
        """Compute the logit of each piece: ``(P, width) -> (P,)``."""
        logits: Tensor = _head(fit, side).outer(features).squeeze(-1)
        return logits

    def weights(self, fit: Fit, side: BatchSide, features: Tensor) -> Tensor:
        """Compute the weights of the terms in the batch's questions: ``(P, width) -> (T, V)``."""
        return side.weights(self.logits(fit, side, features))


def _head(fit: Fit, side: BatchSide) -> Any:
    return fit.model.heads.head(side.kind)


def formula(anchor: Mapping[str, Any]) -> str:
    """Return the formula of a document term's weight as text, from the `anchor` of a manifest."""
    form = term_weighting.Form.from_anchor(anchor)
    bm25 = f"(k1 {anchor['k1']:g}, b {anchor['b']:g})"
    impact = f"BM25 impact {bm25}" if form.tf_power == 1 else f"idf · (BM25's frequency part {bm25})^{form.tf_power:g}"
    factor = {"bm25": f"{impact} · ", "idf": "idf · ", "none": ""}[form.kind]
    return f"{factor}{_MULTIPLIER[form.activation]}, {form.pieces} over its pieces; of a query: {form.query}"
