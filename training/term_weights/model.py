"""Term weights in training: the model that a run starts with, the texts, states, negatives and teacher scores that it reads, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import HEADS, Manifest, digest, weight_files
from termweave.encoders.model_lookup import resolve
from termweave.encoders.models import joint_model
from termweave.encoders.models.joint_model import HeadShape, JointModel
from termweave.encoders.term_weighting import BM25, Form, Kind, anchored, place_tags
from termweave.errors import ModelError, UsageError
from termweave.support.stopwatch import stopwatch
from termweave.training import backbone_model
from termweave.training.data import teacher_scores
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.sampler import TrainingInputs
from termweave.training.data.teacher_scores import MADE, RANKER, Distilled
from termweave.training.dev_measure import DevelopmentSet, depth, ranking_measure, stored
from termweave.training.methods.base import Cost
from termweave.training.methods.term_weights import ANCHOR, TermWeightParameters
from termweave.training.ranker import teacher as ranker_teacher
from termweave.training.term_weights import hidden_states
from termweave.training.term_weights.batch import Prepared, padded
from termweave.training.trainer.passes import parameter_bytes, pass_cost, sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import PieceTokenizer
    from termweave.encoders.analysis.words import Analysis
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics
    from termweave.training.methods.base import Say
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder import FolderContents
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.hidden_states import States


def build(settings: TermWeightParameters, folder: Path) -> JointModel:
    """Build backbone and heads as they are before training; layers that are not trained are frozen.

    Args:
        settings: Settings of the method.
        folder: Folder of the backbone.

    Raises:
        UsageError: The settings do not fit the backbone or the model to start from.
        ModelError: A folder is incomplete.
    """
    torch.manual_seed(settings.seed)  # the first layers of the heads are random
    backbone = backbone_model.load(folder, settings)
    form = settings.form()
    shape = _shape(settings, int(backbone.config.num_hidden_layers))
    pooling, _ = backbone_model.reading_of(folder, settings)
    model = JointModel(backbone, shape, pooling)
    if form.activation == "log":
        for head in {model.heads.head("document"), model.heads.head("query")}:
            torch.nn.init.constant_(head.outer.bias, 0.5)  # a ReLU that starts at 0 or below may never get a gradient
    if settings.start != ANCHOR:
        _load_heads(model, form, settings.start)
    return model


def _shape(settings: TermWeightParameters, layers: int) -> HeadShape:
    """Return the shape of the heads. A part whose setting the method does not have is left out."""
    deep = settings.hidden > 0
    return HeadShape(
        layer=layers // 2,
        hidden=settings.hidden,
        features=2 if deep else 0,
        gate=int(settings.fcm),
        shared=int(settings.shared),
        tags=int(settings.bmes),
        lower=int(deep),
    )


def _load_heads(model: JointModel, form: Form, name: str) -> None:
    """Load the heads of another model to start training from them.

    Raises:
        UsageError: The heads have another shape, form or backbone.
        ModelError: The file of the heads is missing or damaged.
    """
    path = resolve(name)
    manifest = read_folder(path, check=False).manifest
    if not (path / HEADS).is_file():
        raise ModelError(
            f"Training cannot start from {name!r}: {HEADS} is missing.", "Name a model that `termweave train` wrote."
        )
    usual = asdict(BM25())
    theirs = asdict(HeadShape(**manifest.heads)) | {name: manifest.anchor.get(name, usual[name]) for name in usual}
    theirs, ours = theirs | asdict(Form.from_anchor(manifest.anchor)), asdict(model.shape) | usual | asdict(form)
    theirs["backbone"], ours["backbone"] = manifest.training.get("backbone_hash"), backbone_model.fingerprint(model.backbone)
    if differences := [f"{part}: {theirs[part]}, here {ours[part]}" for part in ours if theirs[part] != ours[part]]:
        raise UsageError(
            f"The heads of {name!r} do not fit ({'; '.join(differences)}).",
            "Use the method, the settings and the backbone that they were trained with (its card names them), or start=anchor.",
        )
    try:
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, RuntimeError) as error:
        raise ModelError(f"{path / HEADS} is damaged.", "Copy the folder again, or train it again.") from error


def save(model: JointModel, folder: Path, contents: FolderContents) -> None:
    """Write the weights and the manifest of a model."""
    settings = contents.settings
    _, reading = backbone_model.reading_of(contents.setup.backbone, settings)
    joint_model.save(
        model,
        folder,
        Manifest(
            name=contents.name,
            kind="anchored",
            outputs=tuple(settings.outputs.split(",")),
            hash="",
            max_length=backbone_model.length(model.backbone, settings.max_length),
            pooling=model.pooling,
            terms=settings.terms,
            analysis=contents.setup.analysis.id,
            anchor={**asdict(settings.form()), **asdict(BM25())},
            settings={"prompts": reading.prompts} if reading.prompts else {},
            training={**contents.training, "backbone_hash": backbone_model.fingerprint(model.backbone)},
        ),
    )


#: Number of texts computed at once, from cached states and by forward passes.
_BLOCK, _LIVE_BLOCK = 256, 16


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def weigh(model: JointModel, prepared: Prepared, kind: Kind) -> list[TermWeights]:
    """Compute term weights as the exported model does: heads on cached states, or forward passes if no states are cached."""
    weighed: list[TermWeights] = []
    states = prepared.states
    size = _BLOCK if states is not None else _LIVE_BLOCK
    for first in range(0, len(prepared.pieces), size):
        texts = range(first, min(first + size, len(prepared.pieces)))
        logits = _cached(model, prepared, states, kind, texts) if states is not None else _live(model, prepared, kind, texts)
        for text, z in zip(texts, logits, strict=True):
            weighed.append(prepared.anchors[text].weights(z, prepared.pieces[text].words, kind))
    return weighed


def _features(prepared: Prepared, text: int, kind: Kind) -> NDArray[np.float32]:
    words = prepared.pieces[text].words
    return np.column_stack((prepared.anchors[text].features(words, kind), place_tags(words))).astype(np.float32)


def _cached(model: JointModel, prepared: Prepared, states: States, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    head = model.heads.head(kind)
    device = next(head.parameters()).device
    starts = states.starts[texts.start : texts.stop + 1]
    hidden = torch.from_numpy(states.values[starts[0] : starts[-1]].astype(np.float32)).to(device)
    features = torch.from_numpy(np.concatenate([_features(prepared, text, kind) for text in texts])).to(device)
    lengths = np.diff(starts)
    means = states.means[texts.start : texts.stop] if head.gated else np.zeros((len(texts), 1), dtype=np.float32)
    z = head(hidden, features, torch.from_numpy(np.repeat(means, lengths, axis=0)).to(device))
    return np.split(z.cpu().numpy(), np.cumsum(lengths)[:-1])


def _live(model: JointModel, prepared: Prepared, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    device = next(model.heads.parameters()).device
    pieces = [prepared.pieces[text] for text in texts]
    inputs = padded(pieces, [_features(prepared, text, kind) for text in texts])
    outputs = model(*(each.to(device) for each in inputs))
    chosen = outputs[0 if kind == "document" else 1].cpu().numpy()
    return [row[: len(each.ids)] for row, each in zip(chosen, pieces, strict=True)]


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
        questions, length = weigh(model, self.questions, "query"), depth(self.measure)
        return [
            ranking_measure(SparseIndex(weights).rankings(questions, length, self.pairs.spared), self.gains(), self.measure)
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
