"""Write the model folder of a finished run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.encoders.manifest import STATISTICS, TOKENIZER
from termweave.training import families

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.statistics import CorpusStatistics
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.setup import RunSetup


@dataclass(frozen=True)
class FolderContents:
    """The contents of a model folder other than the weights.

    Attributes:
        name: Name of the model.
        method: The training method.
        settings: All settings, with the values that were used for automatic ones.
        setup: Setup of the first data set, with backbone, tokeniser and analysis.
        statistics: Document frequencies for texts without a corpus.
        training: Description of the training for the manifest.
    """

    name: str
    method: TrainingMethod
    settings: Any
    setup: RunSetup
    statistics: CorpusStatistics
    training: Mapping[str, Any]


def write(model: Any, folder: Path, contents: FolderContents) -> None:
    """Write the model folder, without the exported graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(contents.setup.backbone / TOKENIZER, folder / TOKENIZER)
    (folder / STATISTICS).write_bytes(contents.statistics.to_bytes())
    families.get(contents.method.family).save(model, folder, contents)
