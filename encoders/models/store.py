"""Trained models on disk: the backbone as transformers saves it, the heads beside it, and one description of both.

``model.safetensors`` and ``config.json`` are the backbone alone, so that transformers and sentence-transformers read the folder.
``heads.safetensors`` holds what termweave adds. `encoders.manifest.Manifest` describes how the two belong together.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from termweave.encoders.manifest import MANIFEST, TOKENIZER, WEIGHTS, Manifest, ModelFolder, digest, weight_files, write_manifest
from termweave.encoders.models.joint_model import HeadShape, JointModel
from termweave.errors import ModelError, UsageError
from termweave.support.messages import counted, first_line

if TYPE_CHECKING:
    from pathlib import Path

HEADS = "heads.safetensors"


def load_backbone(path: Path, layers: int = 0, *, head: str = "") -> Any:
    """Load an encoder from a transformers folder, in eval mode, float32. Code of the model never runs.

    Attention is the eager one: the legacy ONNX exporter makes its fastest int8 graph of it (99.8 texts/s; dynamo: 88.3).

    Args:
        path: The folder.
        layers: How many of its layers, from below; 0: all.
        head: The head on the encoder: "" for none, "ForMaskedLM" or "ForSequenceClassification".

    Raises:
        ModelError: A file is missing or damaged, or the weights are those of another architecture.
        UsageError: The model has fewer layers.
    """
    import transformers  # noqa: PLC0415 - seconds
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    for name in ("config.json", WEIGHTS, TOKENIZER):
        if not ((path / name).is_file() or (name == WEIGHTS and weight_files(path))):
            if (path / MANIFEST).is_file() and name == WEIGHTS:
                raise ModelError(
                    f"{path} holds ONNX graphs alone, without the weights for torch.",
                    "It is exported already: index with it. To export again, give the model that it was made from.",
                )
            raise ModelError(
                f"{path} is not a transformers model: {name} is missing.", "Give the folder that save_pretrained wrote."
            )
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    again = "Copy the folder again, or give the one that save_pretrained wrote."
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(path, **local)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path / 'config.json'} describes no model that transformers knows: {first_line(error)}.", again
        ) from error
    if layers > config.num_hidden_layers:
        raise UsageError(
            f"layers={layers}, but the backbone has {config.num_hidden_layers} layers.", "Use fewer, or 0 for all of it."
        )
    if layers:
        config.num_hidden_layers = layers
    extra = {"add_pooling_layer": False} if config.model_type == "bert" and not head else {}
    options = {**local, "attn_implementation": "eager", "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        model, info = getattr(transformers, f"AutoModel{head}").from_pretrained(path, config=config, **options, **extra)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"The weights in {path} are damaged: {first_line(error)}.", again) from error
    # Transformers would start these tensors at random, with no more than a warning.
    missing = [*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])]
    if missing := [name for name in missing if head or "pooler" not in name]:
        what = f"{counted(len(missing), 'tensor')} that config.json describes, or in another shape ({missing[0]})"
        raise ModelError(f"{path / WEIGHTS} lacks {what}.", again)
    return model.eval().float()


def save(model: JointModel, path: Path, manifest: Manifest) -> Manifest:
    """Write backbone, heads and the manifest with its hash; ``tokenizer.json`` must be in the folder already.

    Returns:
        The manifest that was written.
    """
    model.backbone.save_pretrained(path)
    save_file({name: tensor.contiguous() for name, tensor in model.heads.state_dict().items()}, path / HEADS)
    for name in (WEIGHTS, HEADS):
        (path / name).chmod(0o644)  # safetensors writes for the owner alone
    written = replace(
        manifest,
        hash=_hash(model, path, manifest),
        heads=model.shape.as_dict(),
        dimension=int(model.backbone.config.hidden_size),
    )
    write_manifest(path, written)
    return written


def _hash(model: JointModel, path: Path, manifest: Manifest) -> str:
    """The hash that names a model, over all it computes with; the date and the versions of libraries do not enter it."""
    state = blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode())
        state.update(tensor.detach().cpu().float().numpy().tobytes())
    state.update(digest(path / TOKENIZER).encode())
    prompts = (
        [sorted(table.items())] if (table := manifest.settings.get("prompts")) else []
    )  # models without prompts keep their hashes
    state.update(repr((manifest.analysis, manifest.anchor, manifest.max_length, manifest.pooling, *prompts)).encode())
    return state.hexdigest()


def load(path: Path) -> tuple[JointModel, ModelFolder]:
    """Load what `save` wrote, in eval mode.

    Raises:
        ModelError: A file is missing or damaged, or is not the one that was saved.
    """
    folder = ModelFolder.read(path, check=False)
    if not (path / HEADS).is_file():
        raise ModelError(
            f"{path} cannot be exported: {HEADS} is missing.",
            "Give the folder that training wrote; a shipped one holds only the graph.",
        )
    try:
        model = JointModel(load_backbone(path), HeadShape(**folder.manifest.heads), folder.manifest.pooling)
        model.heads.load_state_dict(load_file(path / HEADS))
    except (SafetensorError, RuntimeError) as error:  # cut short, or tensors of other shapes than the manifest says
        raise ModelError(
            f"The weights in {path} are damaged: {first_line(error)}.", "Copy the folder again, or train it anew."
        ) from error
    if _hash(model, path, folder.manifest) != folder.manifest.hash:
        raise ModelError(
            f"The model in {path} was altered: its weights, tokeniser or description are not those of {folder.manifest.name!r} "
            f"({folder.manifest.hash}).",
            "Copy the folder again, or train it anew.",
        )
    return model.eval(), folder
