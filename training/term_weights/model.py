"""Build the term-weight model that a run starts with, save the trained model, and weigh the terms of many texts with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import HEADS, Manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.models import joint_model
from termweave.encoders.models.joint_model import HeadShape, JointModel
from termweave.encoders.term_weighting import BM25, Form, place_tags
from termweave.errors import ModelError, UsageError
from termweave.training import backbone_model
from termweave.training.backbone_model import reading_of
from termweave.training.methods.term_weights import ANCHOR
from termweave.training.term_weights.batch import padded

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.term_weighting import Kind
    from termweave.records import TermWeights
    from termweave.training.methods.term_weights import TermWeightParameters
    from termweave.training.model_folder import FolderContents
    from termweave.training.term_weights.batch import Prepared
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
    pooling, _ = reading_of(folder, settings)
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
        raise ModelError(f"Training cannot start from {name!r}: {HEADS} is missing.", "Name one that `termweave train` wrote.")
    usual = asdict(BM25())
    theirs = asdict(HeadShape(**manifest.heads)) | {name: manifest.anchor.get(name, usual[name]) for name in usual}
    theirs, ours = theirs | asdict(Form.from_anchor(manifest.anchor)), asdict(model.shape) | usual | asdict(form)
    if differences := [f"{part}: {theirs[part]}, here {ours[part]}" for part in ours if theirs[part] != ours[part]]:
        raise UsageError(
            f"The heads of {name!r} have another shape ({'; '.join(differences)}).",
            "Use the method and the settings that it was trained with, or start=anchor.",
        )
    if manifest.training.get("backbone_hash") != backbone_model.fingerprint(model.backbone):
        raise UsageError(
            f"The heads of {name!r} were trained on another backbone.",
            "Set backbone to the one that its card names, or begin without these heads: start=anchor.",
        )
    try:
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, RuntimeError) as error:
        raise ModelError(f"{path / HEADS} is damaged.", "Copy the folder again, or train it again.") from error


def save(model: JointModel, folder: Path, contents: FolderContents) -> None:
    """Write the weights and the manifest of a model."""
    settings = contents.settings
    _, reading = reading_of(contents.setup.backbone, settings)
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
