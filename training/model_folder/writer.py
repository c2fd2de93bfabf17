"""Write the model folder of a finished run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.encoders.manifest import STATISTICS, TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.statistics import CorpusStatistics
    from termweave.training.methods.base import Method
    from termweave.training.setup import RunSetup


@dataclass(frozen=True)
class FolderContents:
    """The contents of a model folder other than the weights.

    Attributes:
        name: Name of the model.
        settings: All settings, with the values that were used for automatic ones.
        setup: Setup of the first data set, with backbone, tokeniser and analysis.
        statistics: Document frequencies for texts without a corpus.
        training: Description of the training for the manifest.
    """

    name: str
    settings: Any
    setup: RunSetup
    statistics: CorpusStatistics
    training: Mapping[str, Any]


def write(method: Method, model: Any, folder: Path, contents: FolderContents) -> None:
    """Write the folder of a model that a method trained, without the exported graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(contents.setup.backbone / TOKENIZER, folder / TOKENIZER)
    (folder / STATISTICS).write_bytes(contents.statistics.to_bytes())
    method.save(model, folder, contents)
