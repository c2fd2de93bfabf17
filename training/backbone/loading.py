"""The backbone as a torch module: which layers are trained, how many word-pieces it reads, and its fingerprint."""

from __future__ import annotations

import shutil
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from termweave.encoders.manifest import WEIGHTS
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.training.methods.parameters import TrainingParameters

_TOKENISER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "added_tokens.json")


def load(folder: Path, settings: TrainingParameters) -> Any:
    """Load a backbone; its lower layers are frozen as the setting `top_layers` says.

    Raises:
        UsageError: More layers are to be trained than there are.
        ModelError: The folder is damaged.
    """
    from termweave.encoders.models.transformer import load_backbone  # noqa: PLC0415 - torch

    backbone = load_backbone(folder, settings.layers)
    freeze(backbone, settings.top_layers)
    return backbone


def freeze(backbone: Any, trained: int) -> None:
    """Freeze all but the top layers of a backbone: `trained` of them, all of the backbone with -1.

    Raises:
        UsageError: More layers are to be trained than there are.
    """
    import torch  # noqa: PLC0415 - seconds

    layers = int(backbone.config.num_hidden_layers)
    top = []
    if trained > 0:
        lists = [module for module in backbone.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == layers]
        if trained > layers or not lists:
            raise UsageError(f"top_layers={trained}, but the backbone has {layers} layers.", "Use fewer, or -1 for all of it.")
        top = list(lists[0])[-trained:]
    backbone.requires_grad_(trained == -1)
    for layer in top:
        layer.requires_grad_(requires_grad=True)


def attend_by_sdpa(backbone: Any) -> None:
    """Switch to the attention that is fastest in training; `load` chooses the one that exports best."""
    if hasattr(backbone, "set_attn_implementation"):
        backbone.set_attn_implementation("sdpa")


def write_backbone(model: Any, source: Path, folder: Path) -> None:
    """Write a model as `save_pretrained` does, with those files of the backbone's tokeniser that transformers reads beside ``tokenizer.json``."""
    model.save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)  # safetensors writes for the owner alone
    for name in _TOKENISER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def length(backbone: Any, wanted: int) -> int:
    """Cut a length to the number of word-pieces that the backbone has positions for."""
    config, embeddings = backbone.config, getattr(backbone, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    before = 0 if padding is None else padding + 1  # where padding has a position (RoBERTa, MPNet), words come after it
    return min(wanted, int(getattr(config, "max_position_embeddings", wanted)) - before)


def settled(backbone: Any, settings: Any, say: Callable[[str], None]) -> Any:
    """Return the settings with lengths that the backbone can read, and tell the user which ones were cut."""
    lengths = {name: length(backbone, getattr(settings, name)) for name in ("max_length", "training_length")}
    for name, allowed in lengths.items():
        if allowed != (asked := getattr(settings, name)):
            say(f"{name} is {allowed:,}, not {asked:,}: the backbone counts no further")
    return replace(settings, **lengths)


def fingerprint(backbone: Any) -> str:
    """Digest of a backbone's parameters, the same for every file format: 16 hexadecimal digits."""
    state = blake2b(digest_size=8)
    for name, tensor in sorted(backbone.state_dict().items()):
        state.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return state.hexdigest()
