"""Build the term-weight model that a run starts with, and save the trained model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import Manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.models import joint_model
from termweave.encoders.models.joint_model import HEADS, HeadShape, JointModel
from termweave.encoders.term_weighting import BM25, Form
from termweave.errors import ModelError, UsageError
from termweave.training.backbone import loading
from termweave.training.backbone.reading import reading_of
from termweave.training.methods.term_weights import ANCHOR

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.training.methods.term_weights import TermWeightParameters
    from termweave.training.model_folder.writer import FolderContents


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
    backbone = loading.load(folder, settings)
    form = settings.form()
    shape = _shape(settings, int(backbone.config.num_hidden_layers))
    pooling, _ = reading_of(folder, settings)
    model = JointModel(backbone, shape, pooling)
    if form.activation == "log":
        for head in {model.heads.head("document"), model.heads.head("query")}:
            torch.nn.init.constant_(head.outer.bias, 0.5)  # a ReLU that starts at 0 or below may never get a gradient
    if settings.start != ANCHOR:
        _load_heads(model, form, settings.start)
    return model


def _shape(settings: TermWeightParameters, layers: int) -> HeadShape:
    """The shape of the heads. A part whose setting the method does not have is left out."""
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
            f"Training cannot start from the model {name!r}: {HEADS} is missing.", "Name a folder that `termweave train` wrote."
        )
    usual = asdict(BM25())
    theirs = HeadShape(**manifest.heads).as_dict() | {name: manifest.anchor.get(name, usual[name]) for name in usual}
    ours = model.shape.as_dict() | usual
    if differences := [f"{part}: {theirs[part]}, here {ours[part]}" for part in ours if theirs[part] != ours[part]]:
        raise UsageError(
            f"The heads of {name!r} have another shape ({'; '.join(differences)}).",
            "Use the settings that it was trained with, or start=anchor.",
        )
    if Form.from_anchor(manifest.anchor) != form:
        raise UsageError(
            f"The heads of {name!r} were trained for another form of weights ({Form.from_anchor(manifest.anchor)}).",
            "Use the method and the settings anchor and query that it was trained with, or start=anchor.",
        )
    if manifest.training.get("backbone_hash") != loading.fingerprint(model.backbone):
        raise UsageError(
            f"The heads of {name!r} were trained on another backbone.", "Set backbone to that one, or use start=anchor."
        )
    try:
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, RuntimeError) as error:
        raise ModelError(f"{path / HEADS} is damaged.", "Copy the folder again, or train it again.") from error


def save(model: JointModel, folder: Path, contents: FolderContents, kind: str) -> None:
    """Write the weights and the manifest of a model."""
    settings = contents.settings
    _, reading = reading_of(contents.setup.backbone, settings)
    joint_model.save(
        model,
        folder,
        Manifest(
            name=contents.name,
            kind=kind,
            outputs=tuple(settings.outputs.split(",")),
            hash="",
            max_length=loading.length(model.backbone, settings.max_length),
            pooling=model.pooling,
            terms=settings.terms,
            analysis=contents.setup.analysis.id,
            anchor={**asdict(settings.form()), **asdict(BM25())},
            settings={"prompts": reading.prompts} if reading.prompts else {},
            training={**contents.training, "backbone_hash": loading.fingerprint(model.backbone)},
        ),
    )
