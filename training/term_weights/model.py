"""Build the term-weight model that a run starts with, and save the trained model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from termweave.encoders.layouts import read_folder
from termweave.encoders.manifest import Manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.models import store
from termweave.encoders.models.joint_model import HeadShape, JointModel
from termweave.encoders.models.store import HEADS
from termweave.encoders.term_weighting.weight_function import Form
from termweave.errors import ModelError, UsageError
from termweave.training.backbone import loading
from termweave.training.backbone.reading import reading_of
from termweave.training.term_weights.declaration import ANCHOR, TermWeightMethod

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.training.methods.base import TrainingMethod
    from termweave.training.model_folder.writer import FolderContents


def form_of(method: TrainingMethod, settings: Mapping[str, Any]) -> Form:
    """The form of weights (how logits become weights) of a method with its settings."""
    return cast("TermWeightMethod", method).form(settings)


def build(method: TrainingMethod, settings: Mapping[str, Any], folder: Path) -> JointModel:
    """Build backbone and heads as they are before training; layers that are not trained are frozen.

    Args:
        method: The method, of the family of term weights.
        settings: Settings of the method.
        folder: Folder of the backbone.

    Raises:
        UsageError: The settings do not fit the backbone or the model to start from.
        ModelError: A folder is incomplete.
    """
    torch.manual_seed(int(settings["seed"]))  # the first layers of the heads are random
    backbone = loading.load(folder, settings)
    form = form_of(method, settings)
    shape = _shape(settings, int(backbone.config.num_hidden_layers))
    model = JointModel(backbone, shape, reading_of(folder, settings).pooling)
    if form.activation == "log":
        for head in {model.heads.head("document"), model.heads.head("query")}:
            torch.nn.init.constant_(head.outer.bias, 0.5)  # a ReLU that starts at 0 or below may never get a gradient
    if settings["start"] != ANCHOR:
        _load_heads(model, form, str(settings["start"]))
    return model


def _shape(settings: Mapping[str, Any], layers: int) -> HeadShape:
    """The shape of the heads. A part whose setting the method does not have is left out."""
    deep = settings["hidden"] > 0
    layer = layers // 2 if settings["layer"] < 0 else int(settings["layer"])
    if layer > layers:
        raise UsageError(f"layer={layer} does not exist: the backbone has {layers} layers.", f"Set layer to 0 to {layers}.")
    return HeadShape(
        layer=layer,
        hidden=int(settings["hidden"]),
        features=2 if deep else 0,
        gate=int(bool(settings.get("fcm"))),
        shared=int(bool(settings["shared"])),
        tags=int(bool(settings.get("bmes"))),
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
    theirs, ours = HeadShape(**manifest.heads).as_dict(), model.shape.as_dict()
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
    prompts = dict(reading_of(contents.setup.backbone, settings).prompts)
    store.save(
        model,
        folder,
        Manifest(
            name=contents.name,
            kind=kind,
            outputs=tuple(str(settings["outputs"]).split(",")),
            hash="",
            max_length=loading.length(model.backbone, int(settings["max_length"])),
            pooling=model.pooling,
            terms=str(settings["terms"]),
            analysis=contents.setup.analysis.id,
            anchor={**asdict(form_of(contents.method, settings)), "k1": settings["k1"], "b": settings["b"]},
            settings={"prompts": prompts} if prompts else {},
            training={**contents.training, "backbone_hash": loading.fingerprint(model.backbone)},
        ),
    )
