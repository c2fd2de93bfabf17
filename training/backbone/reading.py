"""How a backbone reads texts and makes vectors, as it was trained: its pooling and its prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.kinds.base import PromptSettings
from termweave.encoders.kinds.sentence_layout import prompts_of
from termweave.encoders.kinds.sentence_modules import read_json, read_modules
from termweave.encoders.manifest import MANIFEST, ModelFolder
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from termweave.training.methods.parameters import TrainingParameters

#: The poolings of a joint model (`encoders.models.joint_model.POOLING`, which needs torch).
_POOLING = ("mean", "cls")


def reading_of(folder: Path, settings: TrainingParameters) -> tuple[str, PromptSettings]:
    """How a joint model on this backbone pools states, "mean" or "cls", and the prompts that it reads. Weights alone need neither.

    Args:
        folder: Of the backbone.
        settings: Of the method.

    Raises:
        UsageError: The backbone makes its vectors in a way that a joint model cannot.
        ModelError: A description in the folder is damaged.
    """
    if "dense" not in settings.outputs:
        return "mean", PromptSettings()
    if (folder / MANIFEST).is_file():
        manifest = ModelFolder.read(folder, check=False).manifest
        pooling, prompts = manifest.pooling, dict(manifest.settings.get("prompts", {}))
        layers, included = manifest.settings.get("layers"), manifest.settings.get("include_prompt", True)
    else:
        modules = read_modules(folder)
        pooling, prompts = modules.pooling, prompts_of(read_json(folder / "config_sentence_transformers.json", missing={}))
        layers, included = modules.dense, modules.include_prompt
    if problem := problem_of(pooling, _POOLING, bool(layers), bool(prompts) and not included):
        raise UsageError(
            f"{folder.name} was trained with {problem}. A model of weights and vectors would make other vectors of its states.",
            f"Train weights alone (--set outputs=weights), or take a backbone with {' or '.join(_POOLING)} pooling.",
        )
    return pooling, PromptSettings(prompts=prompts)


def problem_of(pooling: str, trained: Collection[str], layers: bool, left_out: bool) -> str:  # noqa: FBT001
    """What a backbone's vectors are made with that training does not do; "" if nothing.

    Args:
        pooling: How its states are pooled.
        trained: The poolings that are trained.
        layers: Whether dense layers follow the pooling.
        left_out: Whether the pooling leaves out the tokens of a prompt.
    """
    if pooling not in trained:
        return f"{pooling} pooling"
    return "dense layers behind its pooling" if layers else "prompts that its pooling leaves out" if left_out else ""
