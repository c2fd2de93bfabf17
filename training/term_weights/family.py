"""Models of term weights: how they are built, prepared for, exported and described (`families.Family`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.manifest import digest, weight_files
from termweave.encoders.onnx.export import export
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.encoders.term_weighting.weight_function import Form
from termweave.training.backbone import loading
from termweave.training.backbone.reading import reading_of
from termweave.training.data import negatives, teacher_scores
from termweave.training.families import CardText
from termweave.training.ranker import teacher as ranker_teacher
from termweave.training.term_weights import evaluation, hidden_states, inputs
from termweave.training.term_weights import model as models
from termweave.training.term_weights.estimate import estimate
from termweave.training.term_weights.model import build as build_model
from termweave.training.term_weights.trainable_heads import TrainableHeads as Trainable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.models.joint_model import JointModel
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.batch import Prepared
    from termweave.training.term_weights.declaration import TermWeightParameters
    from termweave.training.term_weights.hidden_states import States

__all__ = ["KIND", "Trainable", "build_model", "card_text", "check", "estimate", "export", "prepare", "save"]

#: Bits in which an index stores weights.
BITS = 8
_MULTIPLIER = {"softplus": "softplus(z + ln(e - 1))", "log": "log(1 + ReLU(z))", "linear": "max(z, 0)"}
_COSINES = ", cosine of the vectors {int8_cosine_mean:.4f} on average, {int8_cosine_min:.4f} at least"
#: The kind of the manifests of its model folders.
KIND = "anchored"


def check(settings: TermWeightParameters, setup: RunSetup) -> None:
    """Refuse a teacher that cannot be used: a file of scores, or a ranker."""
    wanted = settings.teacher
    if wanted.startswith(teacher_scores.RANKER):
        ranker_teacher.check(wanted)
    teacher_scores.written(wanted, setup)


def prepare(
    method: TrainingMethod, part: DataPart, model: JointModel, say: Callable[[str], None]
) -> tuple[inputs.TermWeightInputs, evaluation.TermWeightDevelopment]:
    """Prepare a data set: analyse its texts, compute hidden states, find hard negatives and read teacher scores."""
    del method
    setup, settings, texts = part.setup, part.settings, part.setup.texts
    wanted = settings.teacher
    teacher: teacher_scores.Teacher | None = teacher_scores.written(wanted, setup)  # before the states, which take minutes
    bm25, form = BM25(), settings.form()
    length = loading.length(model.backbone, settings.training_length)
    identity = "".join(digest(file) for file in weight_files(setup.backbone))
    common = (setup.analysis, setup.tokenizer, setup.statistics, bm25)
    prompt = reading_of(setup.backbone, settings)[1].prompt
    documents = inputs.prepare(texts, *common, "document", length, form, prompt("document"))
    train = inputs.prepare(setup.train.questions, *common, "query", length, form, prompt("query"))
    dev = inputs.prepare(setup.dev.questions, *common, "query", length, form, prompt("query"))
    live = settings.top_layers != 0
    original = not live or settings.joint > 0 or wanted in teacher_scores.MADE

    def states_of(prepared: Prepared) -> States | None:
        return hidden_states.states(model, identity, prepared.pieces, say=say) if original else None

    document_states, train_states, dev_states = (states_of(each) for each in (documents, train, dev))
    mined: list[NDArray[np.int64]] = []
    if depth := settings.negatives:
        mined = negatives.mine(setup.train.questions, texts, setup.train.known, setup.analysis, setup.statistics, bm25, depth)
    if wanted.startswith(teacher_scores.RANKER):
        wrong: list[list[int]] = [each.tolist() for each in mined] or [[]] * len(setup.train)
        pairs = [[*sorted(right), *others] for right, others in zip(setup.train.relevant, wrong, strict=True)]
        teacher = ranker_teacher.teach(wanted, setup, pairs, say)
    width = int(model.backbone.config.hidden_size)
    if wanted in teacher_scores.MADE:
        assert document_states is not None
        assert train_states is not None
        vectors = (each.pooled(model.pooling)[:, -width:] for each in (document_states, train_states))
        teacher = teacher_scores.vector_teacher(wanted, setup, bm25, *vectors)
    if not model.shape.lower:
        document_states, train_states, dev_states = (
            None if each is None else evaluation.last_layer(each, width) for each in (document_states, train_states, dev_states)
        )
    return (
        inputs.TermWeightInputs(
            share=part.share,
            pairs=setup.train,
            documents=documents,
            questions=train,
            document_states=document_states,
            question_states=train_states,
            negatives=mined,
            statistics=setup.statistics,
            distilled=teacher_scores.Distilled.from_settings(teacher, settings),
        ),
        evaluation.TermWeightDevelopment.from_setup(
            setup,
            bits=BITS,
            measure=settings.measure,
            documents=documents,
            questions=dev,
            document_states=None if live else document_states,
            question_states=None if live else dev_states,
        ),
    )


def save(model: JointModel, folder: Path, contents: FolderContents) -> None:
    """Write heads, backbone and manifest."""
    models.save(model, folder, contents, KIND)


def card_text(manifest: Manifest) -> CardText:
    """Text for the card: the outputs, the formula of a weight, and how close the exported graph is to the model."""
    dense = "dense" in manifest.outputs
    parity = manifest.quantisation["parity"]
    cosines = _COSINES.format(**parity) if dense else ""
    return CardText(
        "Term weights and a dense vector" if dense else "Term weights",
        (f"weight of a term: {formula(manifest.anchor)}",),
        f"rank correlation of the multipliers {parity['int8_rank_correlation']:.4f}{cosines}",
    )


def formula(anchor: Mapping[str, Any]) -> str:
    """The formula of a document term's weight as text, from the `anchor` of a manifest."""
    form = Form.from_anchor(anchor)
    bm25 = f"(k1 {anchor['k1']:g}, b {anchor['b']:g})"
    impact = f"BM25 impact {bm25}" if form.tf_power == 1 else f"idf · (BM25's frequency part {bm25})^{form.tf_power:g}"
    factor = {"bm25": f"{impact} · ", "idf": "idf · ", "none": ""}[form.kind]
    return f"{factor}{_MULTIPLIER[form.activation]}, {form.pieces} over its pieces; of a query: {form.query}"
