"""From a data set to what term weights learn from: texts, hidden states, negatives, teacher scores, held-out questions; what a run takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from termweave.encoders.manifest import digest, weight_files
from termweave.encoders.term_weighting import BM25, Form, anchored
from termweave.support.stopwatch import stopwatch
from termweave.training import backbone_model
from termweave.training.data import teacher_scores
from termweave.training.data.sampler import TrainingInputs
from termweave.training.data.teacher_scores import MADE, RANKER, Distilled
from termweave.training.dev_measure import DevelopmentSet, search_measure, stored
from termweave.training.methods.base import Cost
from termweave.training.ranker import teacher as ranker_teacher
from termweave.training.term_weights import hidden_states
from termweave.training.term_weights.batch import Prepared, padded
from termweave.training.term_weights.model import weigh
from termweave.training.trainer.passes import parameter_bytes, pass_cost, sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import PieceTokenizer
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Kind
    from termweave.statistics import CorpusStatistics
    from termweave.training.methods.base import Say
    from termweave.training.methods.term_weights import TermWeightParameters
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup


@dataclass(frozen=True)
class TermWeightInputs(TrainingInputs):
    """One data set that term weights learn from; the pairs are indices into `documents`.

    Attributes:
        documents: The analysed documents.
        questions: The analysed questions.
        negatives: For each question the indices of its hard negatives; may be empty.
        statistics: Statistics of the whole corpus.
        distilled: Teacher scores and the weight of their loss; None: training has no teacher.
    """

    documents: Prepared
    questions: Prepared
    negatives: list[NDArray[np.int64]]
    statistics: CorpusStatistics
    distilled: Distilled | None = None

    def prepared(self, kind: Kind) -> Prepared:
        """Return the analysed questions or documents."""
        return self.questions if kind == "query" else self.documents

    @cached_property
    def answered(self) -> dict[int, list[int]]:
        """Return relevant document -> the questions that it answers."""
        answered: dict[int, list[int]] = {}
        for question, relevant in enumerate(self.pairs.relevant):
            for document in relevant:
                answered.setdefault(document, []).append(question)
        return answered


@dataclass(frozen=True, kw_only=True)
class TermWeightDevelopment(DevelopmentSet):
    """Held-out questions and the part of the corpus in which they are searched.

    Attributes:
        documents: The analysed documents.
        questions: The analysed questions.
    """

    documents: Prepared
    questions: Prepared

    def figures(self, model: JointModel, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Measure the model on each question, with weights rounded as an index stores them; `unrounded`: a second time with unrounded weights."""
        documents = weigh(model, self.documents, "document")
        questions = weigh(model, self.questions, "query")
        return [
            search_measure(weights, questions, self.gains(), self.pairs.spared, self.measure)
            for weights in (stored(documents), *([documents] if unrounded else []))
        ]


def prepare(
    texts: Sequence[str],
    analysis: Analysis,
    tokenizer: PieceTokenizer,
    statistics: CorpusStatistics,
    bm25: BM25,
    kind: Kind,
    max_length: int,
    form: Form | None = None,
    prompt: str = "",
) -> Prepared:
    """Analyse texts and cut them into word-pieces; `Pieces.words` of the result are indices of the analysis's words.

    Texts are read behind the prompt, whose word-pieces belong to no word.
    """
    words = analysis.words(texts)
    cut = tokenizer.encode([each.clean for each in words], max_length, ends=[each.clean_ends for each in words], prompt=prompt)
    pieces = [replace(piece, words=each.word_of_piece(piece)) for piece, each in zip(cut, words, strict=True)]
    return Prepared([anchored(each, statistics, bm25, kind, form or Form()) for each in words], pieces)


def training_inputs(part: DataPart, model: JointModel, say: Say) -> TermWeightInputs:
    """Analyse the training questions and the documents, compute hidden states, find hard negatives and read teacher scores.

    Raises:
        UsageError: There is no such teacher.
        OSError: The disk has no room for the states.
    """
    setup, settings = part.setup, part.settings
    teacher: teacher_scores.Teacher | None = teacher_scores.written(settings.teacher, setup)  # before the states: minutes
    documents = _documents(part, model, say)
    questions = _read(part, model, setup.train.questions, "query", say, states=documents.states is not None)
    mined = setup.hard_negatives(settings.negatives)
    if settings.teacher.startswith(RANKER):
        wrong: list[list[int]] = [each.tolist() for each in mined] or [[]] * len(setup.train)
        pairs = [[*sorted(right), *others] for right, others in zip(setup.train.relevant, wrong, strict=True)]
        teacher = ranker_teacher.teach(settings.teacher, setup, pairs, say)
    if settings.teacher in MADE:
        width = int(model.backbone.config.hidden_size)
        states = (each.states for each in (documents, questions))
        vectors = (each.pooled(model.pooling)[:, -width:] for each in states if each is not None)
        teacher = teacher_scores.vector_teacher(settings.teacher, setup, *vectors)
    return TermWeightInputs(
        share=part.share,
        pairs=setup.train,
        documents=documents,
        questions=questions,
        negatives=mined,
        statistics=setup.statistics,
        distilled=None if teacher is None else Distilled(teacher, settings.teacher_weight, settings.temperature),
    )


def held_out(part: DataPart, model: JointModel, say: Say) -> TermWeightDevelopment:
    """Analyse the held-out questions and the documents; where the backbone is frozen, the states of both are computed."""
    setup, frozen = part.setup, part.settings.top_layers == 0
    documents = _documents(part, model, say)
    return TermWeightDevelopment(
        setup,
        part.settings.measure,
        documents=documents if frozen else replace(documents, states=None),
        questions=_read(part, model, setup.dev.questions, "query", say, states=frozen),
    )


def _documents(part: DataPart, model: JointModel, say: Say) -> Prepared:
    """Return the analysed documents, made once; with states where the backbone is frozen, or a loss compares with the backbone before training."""
    states = part.settings.top_layers == 0 or part.settings.joint > 0 or part.settings.teacher in MADE
    return part.once("documents", lambda: _read(part, model, part.setup.texts, "document", say, states=states))


def _read(part: DataPart, model: JointModel, texts: Sequence[str], kind: Kind, say: Say, *, states: bool) -> Prepared:
    """Analyse texts; `states`: add the states that the heads read, of both layers or of the last one alone, by the backbone before training."""
    prepared = analysed(part.setup, part.settings, model, texts, kind)
    if not states:
        return prepared
    identity = part.once("identity", lambda: "".join(digest(file) for file in weight_files(part.setup.backbone)))
    whole = hidden_states.states(model, identity, prepared.pieces, say=say)
    first = 0 if model.shape.lower else int(model.backbone.config.hidden_size)
    return replace(prepared, states=replace(whole, values=whole.values[:, first:]))


def analysed(setup: RunSetup, settings: TermWeightParameters, model: JointModel, texts: Sequence[str], kind: Kind) -> Prepared:
    """Analyse questions or documents of a data set as training reads them."""
    length = backbone_model.length(model.backbone, settings.training_length)
    prompt = backbone_model.reading_of(setup.backbone, settings)[1].prompt(kind)
    return prepare(texts, setup.analysis, setup.tokenizer, setup.statistics, BM25(), kind, length, settings.form(), prompt)


def estimate(model: JointModel, settings: TermWeightParameters, setup: RunSetup) -> Cost:
    """Estimate what a run takes, from a few real texts.

    A frozen backbone is estimated to read each text once, though a run does not read texts whose states are cached; layers that are trained
    read the texts of each step, and all texts that are searched at each evaluation. Memory is that of parameters, gradients, the
    optimiser's moments and the activations of a batch.
    """
    questions, documents = settings.texts()
    if settings.top_layers == 0:
        read_document, weigh_document = _one_cached_text(model, setup.texts, "document", settings, setup)
        read_question, weigh_question = _one_cached_text(model, setup.train.questions, "query", settings, setup)
        return Cost(
            step=3 * (questions * weigh_question + documents * weigh_document),  # forwards, and twice that backwards
            look=len(setup.dev) * weigh_question + len(setup.texts) * weigh_document,
            memory_bytes=parameter_bytes(model),
            preparing=len(setup.texts) * read_document + (len(setup.train) + len(setup.dev)) * read_question,
        )

    def one_text(texts: Sequence[str], kind: Kind) -> tuple[float, float]:
        prompt = backbone_model.reading_of(setup.backbone, settings)[1].prompt(kind)
        sample = setup.tokenizer.encode(sampled(texts), settings.training_length, prompt=prompt)
        inputs = padded(sample, [np.zeros((len(each.ids), 3)) for each in sample])
        return pass_cost(model, lambda: torch.cat(model.states(*inputs)), len(sample))

    question_seconds, question_bytes = one_text(setup.train.questions, "query")
    document_seconds, document_bytes = one_text(setup.texts, "document")
    return Cost(
        step=questions * question_seconds + documents * document_seconds,
        look=(len(setup.dev) * question_seconds + len(setup.texts) * document_seconds) / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + questions * question_bytes + documents * document_bytes),
    )


def _one_cached_text(
    model: JointModel, texts: Sequence[str], kind: Kind, settings: TermWeightParameters, setup: RunSetup
) -> tuple[float, float]:
    """Measure how many seconds the frozen backbone takes to read a text, with the graph of the run, and the heads to weigh it from cached states."""
    prepared = analysed(setup, settings, model, sampled(texts, 32), kind)
    starts = np.cumsum([0, *(len(each.ids) for each in prepared.pieces)])
    width = int(model.backbone.config.hidden_size) * (2 if model.shape.lower else 1)
    states = hidden_states.States(np.zeros((int(starts[-1]), width), dtype=np.float16), starts)
    watch = stopwatch()
    weigh(model, replace(prepared, states=states), kind)
    weighing = watch() / len(starts[1:])
    return hidden_states.seconds_of(model, prepared.pieces) / len(starts[1:]), weighing
