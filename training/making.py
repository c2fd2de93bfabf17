"""The model that a run begins with, and the folder that it ends as."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from termweave.encoders.folder import STATISTICS, TOKENIZER, Manifest, ModelFolder, resolve
from termweave.encoders.form import Form
from termweave.errors import ModelError, UsageError
from termweave.training.methods import ANCHOR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from termweave.encoders.models.anchored import HeadShape, JointModel
    from termweave.statistics import CorpusStatistics
    from termweave.training.methods import Method
    from termweave.training.prospect import Prospect


def make_model(method: Method, settings: Mapping[str, Any], backbone: Path) -> JointModel:
    """Backbone and heads as training begins with them, with what is not to be trained frozen.

    Raises:
        UsageError: The settings do not fit the backbone, or the model to start from.
        ModelError: A folder is incomplete.
    """
    import torch  # noqa: PLC0415

    from termweave.encoders.models.anchored import JointModel  # noqa: PLC0415
    from termweave.encoders.models.store import load_backbone  # noqa: PLC0415

    torch.manual_seed(int(settings["seed"]))  # the heads' first layers are drawn
    body = load_backbone(backbone, int(settings["layers"]))
    layers = int(body.config.num_hidden_layers)
    model = JointModel(body, _shape(settings, layers))
    trained, top = settings["top_layers"], []
    if trained > 0:
        lists = [each for each in body.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == layers]
        if trained > layers or not lists:
            raise UsageError(f"top_layers={trained}, but the backbone has {layers} layers.", "Use fewer, or -1 for all of it.")
        top = list(lists[0])[-trained:]
    body.requires_grad_(trained == -1)
    for each in top:
        each.requires_grad_(requires_grad=True)
    if method.form(settings).activation == "log":
        for head in {model.heads.of("document"), model.heads.of("query")}:
            torch.nn.init.constant_(head.outer.bias, 0.5)  # at 0 and below a ReLU may never wake up
    if settings["start"] != ANCHOR:
        _begin(model, method.form(settings), str(settings["start"]))
    return model


def _begin(model: JointModel, form: Form, name: str) -> None:
    """Take the heads of another model.

    Raises:
        UsageError: They do not fit.
        ModelError: There are none, or they are damaged.
    """
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    from termweave.encoders.models.anchored import HeadShape  # noqa: PLC0415 - torch
    from termweave.encoders.models.store import HEADS  # noqa: PLC0415

    path = resolve(name)
    manifest = ModelFolder.read(path, check=False).manifest
    if not (path / HEADS).is_file():
        raise ModelError(f"The model {name!r} cannot be begun with: {HEADS} is missing.", "Name a folder that training wrote.")
    theirs, ours = HeadShape(**manifest.heads).as_dict(), model.shape.as_dict()
    if differs := [f"{each}: {theirs[each]}, here {ours[each]}" for each in ours if theirs[each] != ours[each]]:
        raise UsageError(
            f"The heads of {name!r} have another shape ({'; '.join(differs)}).",
            "Give the settings it was trained with, or start=anchor.",
        )
    if Form.of(manifest.anchor) != form:
        raise UsageError(
            f"The heads of {name!r} were trained for another form of weights ({Form.of(manifest.anchor)}).",
            "Give the method, the anchor and query settings it was trained with, or start=anchor.",
        )
    if manifest.training.get("backbone_hash") != fingerprint(model.backbone):
        raise UsageError(
            f"The heads of {name!r} belong to another backbone.", "Set backbone to the one it was trained on, or start=anchor."
        )
    try:
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, RuntimeError) as error:
        raise ModelError(f"{path / HEADS} is damaged.", "Copy the folder again, or train it again.") from error


def fingerprint(backbone: Any) -> str:
    """What a backbone computes with, however it was saved: 16 hexadecimal digits."""
    state = blake2b(digest_size=8)
    for name, tensor in sorted(backbone.state_dict().items()):
        state.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return state.hexdigest()


def _shape(settings: Mapping[str, Any], layers: int) -> HeadShape:
    """What the heads look like; a method without a setting has not what it switches on."""
    from termweave.encoders.models.anchored import HeadShape  # noqa: PLC0415 - torch

    deep = settings["hidden"] > 0
    layer = layers // 2 if settings["layer"] < 0 else int(settings["layer"])
    if layer > layers:
        raise UsageError(f"layer={layer}, but the backbone has {layers} layers.", f"Use 0 to {layers}.")
    return HeadShape(
        layer=layer,
        hidden=int(settings["hidden"]),
        features=2 if deep else 0,
        gate=int(bool(settings.get("fcm"))),
        shared=int(bool(settings["shared"])),
        tags=int(bool(settings.get("bmes"))),
        lower=int(deep),
    )


def length(model: JointModel, wanted: int) -> int:
    """Word-pieces, as far as the backbone can count them."""
    config, embeddings = model.backbone.config, getattr(model.backbone, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    before = 0 if padding is None else padding + 1  # where padding has a position (RoBERTa, MPNet), words come after it
    return min(wanted, int(getattr(config, "max_position_embeddings", wanted)) - before)


def settled(model: JointModel, settings: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The settings as the backbone allows them: texts are cut where it counts no further, and that is said."""
    lengths = {name: length(model, int(settings[name])) for name in ("max_length", "training_length")}
    for name, found in lengths.items():
        if found != settings[name]:
            say(f"{name} is {found:,}, not {settings[name]:,}: the backbone counts no further")
    return {**settings, **lengths}


def write(
    name: str,
    method: Method,
    settings: Mapping[str, Any],
    ahead: Prospect,
    model: JointModel,
    statistics: CorpusStatistics,
    training: Mapping[str, Any],
    out: Path,
) -> None:
    """Write the model's folder; the export comes after.

    Args:
        name: Of the model.
        method: That made it.
        settings: Of the method.
        ahead: Whose backbone, analysis and BM25 these are.
        model: Trained.
        statistics: The default table for text without a corpus.
        training: What the manifest says of its making.
        out: The folder.
    """
    from termweave.encoders.models import store  # noqa: PLC0415 - torch

    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ahead.backbone / TOKENIZER, out / TOKENIZER)
    (out / STATISTICS).write_bytes(statistics.to_bytes())
    store.save(
        model,
        out,
        Manifest(
            name=name,
            kind="anchored",
            outputs=tuple(str(settings["outputs"]).split(",")),
            hash="",
            max_length=length(model, int(settings["max_length"])),
            terms=str(settings["terms"]),
            analysis=ahead.analysis.id,
            anchor={**asdict(method.form(settings)), "k1": ahead.bm25.k1, "b": ahead.bm25.b},
            training={**training, "backbone_hash": fingerprint(model.backbone)},
        ),
    )
