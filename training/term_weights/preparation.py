"""From a data set to what term weights learn from: analysed texts, hidden states, hard negatives, teacher scores, the held-out questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.manifest import digest, weight_files
from termweave.encoders.term_weighting import BM25
from termweave.training.backbone import loading
from termweave.training.backbone.reading import reading_of
from termweave.training.data import negatives, teacher_scores
from termweave.training.data.teacher_scores import MADE, RANKER, Distilled
from termweave.training.ranker import teacher as ranker_teacher
from termweave.training.term_weights import hidden_states
from termweave.training.term_weights.evaluation import TermWeightDevelopment, last_layer
from termweave.training.term_weights.inputs import TermWeightInputs, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Kind
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.batch import Prepared
    from termweave.training.term_weights.hidden_states import States

#: Bits in which an index stores weights.
BITS = 8


def refuse_teacher(name: str, setup: RunSetup) -> None:
    """Refuse a teacher that cannot be used: a file of scores, or a ranker.

    Raises:
        UsageError: The file or the model is missing.
        InputError: The file scores no pair of a training question.
        ModelError: The model is not a ranker.
    """
    if name.startswith(RANKER):
        ranker_teacher.check(name)
    teacher_scores.written(name, setup)


def training_inputs(part: DataPart, model: JointModel, say: Callable[[str], None]) -> TermWeightInputs:
    """Analyse the training questions and the documents, compute hidden states, find hard negatives and read teacher scores.

    Raises:
        UsageError: There is no such teacher.
        OSError: The disk has no room for the states.
    """
    setup, settings, texts = part.setup, part.settings, part.setup.texts
    teacher: teacher_scores.Teacher | None = teacher_scores.written(
        settings.teacher, setup
    )  # before the states, which take minutes
    documents = part.once("documents", lambda: _analysed(part, model, texts, "document"))
    questions = _analysed(part, model, setup.train.questions, "query")
    document_states = question_states = None
    if settings.top_layers == 0 or settings.joint > 0 or settings.teacher in MADE:
        document_states = part.once("states", lambda: _states(part, model, documents, say))
        question_states = _states(part, model, questions, say)
    mined: list[NDArray[np.int64]] = []
    if depth := settings.negatives:
        mined = negatives.mine(setup.train.questions, texts, setup.train.known, setup.analysis, setup.statistics, BM25(), depth)
    if settings.teacher.startswith(RANKER):
        wrong: list[list[int]] = [each.tolist() for each in mined] or [[]] * len(setup.train)
        pairs = [[*sorted(right), *others] for right, others in zip(setup.train.relevant, wrong, strict=True)]
        teacher = ranker_teacher.teach(settings.teacher, setup, pairs, say)
    if settings.teacher in MADE:
        width = int(model.backbone.config.hidden_size)
        vectors = (each.pooled(model.pooling)[:, -width:] for each in (document_states, question_states) if each is not None)
        teacher = teacher_scores.vector_teacher(settings.teacher, setup, BM25(), *vectors)
    return TermWeightInputs(
        share=part.share,
        pairs=setup.train,
        documents=documents,
        questions=questions,
        document_states=_as_read(model, document_states),
        question_states=_as_read(model, question_states),
        negatives=mined,
        statistics=setup.statistics,
        distilled=Distilled.from_settings(teacher, settings),
    )


def held_out(part: DataPart, model: JointModel, say: Callable[[str], None]) -> TermWeightDevelopment:
    """Analyse the held-out questions; their states, and those of the documents, are computed where the backbone is frozen."""
    setup, frozen = part.setup, part.settings.top_layers == 0
    documents = part.once("documents", lambda: _analysed(part, model, setup.texts, "document"))
    questions = _analysed(part, model, setup.dev.questions, "query")
    return TermWeightDevelopment.from_setup(
        setup,
        bits=BITS,
        measure=part.settings.measure,
        documents=documents,
        questions=questions,
        document_states=_as_read(model, part.once("states", lambda: _states(part, model, documents, say))) if frozen else None,
        question_states=_as_read(model, _states(part, model, questions, say)) if frozen else None,
    )


def _analysed(part: DataPart, model: JointModel, texts: Sequence[str], kind: Kind) -> Prepared:
    setup, settings = part.setup, part.settings
    length = loading.length(model.backbone, settings.training_length)
    prompt = reading_of(setup.backbone, settings)[1].prompt(kind)
    return prepare(texts, setup.analysis, setup.tokenizer, setup.statistics, BM25(), kind, length, settings.form(), prompt)


def _states(part: DataPart, model: JointModel, texts: Prepared, say: Callable[[str], None]) -> States:
    """The states of both layers, by the backbone as it came."""
    identity = part.once("identity", lambda: "".join(digest(file) for file in weight_files(part.setup.backbone)))
    return hidden_states.states(model, identity, texts.pieces, say=say)


def _as_read(model: JointModel, states: States | None) -> States | None:
    """The states that the heads read: of both layers, or of the last one alone."""
    if states is None or model.shape.lower:
        return states
    return last_layer(states, int(model.backbone.config.hidden_size))
