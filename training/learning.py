"""From what a run has before it to a trained model: one loop over one collection or a mixture of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.anchor import BM25
from termweave.encoders.folder import digest
from termweave.training import making, teachers
from termweave.training.sparse import bm25_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.models.anchored import JointModel
    from termweave.training.loop import History
    from termweave.training.materials import Material
    from termweave.training.methods import Method
    from termweave.training.prospect import Prospect
    from termweave.training.scoring import Development
    from termweave.training.sides import Prepared
    from termweave.training.states import States


@dataclass(frozen=True)
class Part:
    """One collection of a run.

    Attributes:
        name: For messages.
        ahead: What it brings.
        settings: That it is prepared by; those of the model are the same for every part.
        share: How often batches come from it, relative to the others.
    """

    name: str
    ahead: Prospect
    settings: Mapping[str, Any]
    share: float = 1.0


@dataclass(frozen=True)
class Learned:
    """What came out.

    Attributes:
        model: With the best parameters, on the CPU.
        developments: Of the parts.
        history: Of the mean development figure.
        settings: As they were used.
    """

    model: JointModel
    developments: list[Development]
    history: History
    settings: dict[str, Any]


def check(method: Method, settings: Mapping[str, Any], ahead: Prospect) -> JointModel:
    """The model that a run with these settings would begin with.

    Raises:
        TermweaveError: What the run would refuse before it computes anything.
    """
    model = making.make_model(method, settings, ahead.backbone)
    teachers.written(str(settings.get("teacher", teachers.NONE)), ahead)
    return model


def learn(
    method: Method,
    settings: Mapping[str, Any],
    parts: Sequence[Part],
    home: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[..., None] = lambda *_, **__: None,
) -> Learned:
    """Train.

    Args:
        method: Of `methods`.
        settings: All of them (`Method.settings`).
        parts: With one backbone and one analysis.
        home: For checkpoints; a run found there is gone on with.
        say: Told what happens.
        progress: ``(done, total, stage)``, for a bar.

    Raises:
        KeyboardInterrupt: Ctrl-C; a checkpoint was written first.
    """
    import torch  # noqa: PLC0415 - seconds

    from termweave.training.loop import fit  # noqa: PLC0415

    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    model = making.make_model(method, settings, parts[0].ahead.backbone)
    settings = making.settled(model, settings, say)
    materials, developments = [], []
    for part in parts:
        material, development = prepared(method, part, model, say)
        materials.append(material)
        developments.append(development)
        bm25 = development.bm25()
        where = f"{len(bm25)} questions in {len(part.ahead.places):,} documents"
        say(f"{part.name}: dev nDCG@10 of BM25 {bm25.mean():.4f} ({where})")
    lesson = method.lesson_class()(model, materials, settings)

    def judge() -> float:
        return float(np.mean([development.figures(model).mean() for development in developments]))

    history = fit(lesson, judge, settings, home, say=say, progress=progress)
    model.to("cpu").eval()
    return Learned(model, developments, history, settings)


def prepared(method: Method, part: Part, model: JointModel, say: Callable[[str], None]) -> tuple[Material, Development]:
    """Anchors, pieces, states, negatives, and what the held-out questions are searched in."""
    from termweave.training import materials, scoring, states  # noqa: PLC0415 - torch

    ahead, settings, texts = part.ahead, part.settings, part.ahead.texts
    wanted = str(settings.get("teacher", teachers.NONE))
    teacher: teachers.Teacher | None = teachers.written(wanted, ahead)  # before the minutes that the states take
    form, length = method.form(settings), making.length(model, int(settings["training_length"]))
    identity = digest(ahead.backbone / "model.safetensors")
    common = (ahead.analysis, ahead.tokenizer, ahead.statistics, ahead.bm25)
    documents = materials.prepare(texts, *common, "document", length, form)
    train = materials.prepare(ahead.train.questions, *common, "query", length, form)
    dev = materials.prepare(ahead.dev.questions, *common, "query", length, form)
    live = settings["top_layers"] != 0
    original = not live or settings.get("joint", 0) > 0 or wanted in teachers.MADE

    def states_of(prepared: Prepared) -> States | None:
        return states.states(model, identity, prepared.pieces, say=say) if original else None

    document_states, train_states, dev_states = (states_of(each) for each in (documents, train, dev))
    negatives: list[NDArray[np.int64]] = []
    if depth := int(settings.get("negatives", 0)):
        negatives = materials.mine(
            ahead.train.questions, texts, ahead.train.known, ahead.analysis, ahead.statistics, ahead.bm25, depth
        )
    width = int(model.backbone.config.hidden_size)
    if wanted in teachers.MADE:
        teacher = teachers.of(wanted, ahead, document_states, train_states, width)
    if not model.shape.lower:
        document_states, train_states, dev_states = (
            None if each is None else scoring.last_layer(each, width) for each in (document_states, train_states, dev_states)
        )
    material = materials.Material(
        share=part.share,
        pairs=ahead.train,
        documents=documents,
        questions=train,
        document_states=document_states,
        question_states=train_states,
        negatives=negatives,
        statistics=ahead.statistics,
        distilled=teachers.Distilled.of(teacher, settings),
    )
    plain = (ahead.analysis, ahead.statistics, BM25())  # the yardstick is not what k1 and b anchor on
    development = scoring.Development(
        pairs=ahead.dev,
        documents=documents,
        questions=dev,
        document_states=None if live else document_states,
        question_states=None if live else dev_states,
        plain=bm25_weights(texts, *plain, "document"),
        asked=bm25_weights(ahead.dev.questions, *plain, "query"),
        bits=int(settings["bits"]),
    )
    return material, development
