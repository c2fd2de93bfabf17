"""The two layouts of a model folder: termweave's own, and that of sentence-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders import hub
from termweave.encoders.kinds import sentence_layout
from termweave.encoders.manifest import MANIFEST, ModelFolder

if TYPE_CHECKING:
    from pathlib import Path


def read_folder(path: Path, *, check: bool = True, name: str = "") -> ModelFolder:
    """Read a folder that termweave wrote, or one in the layout of sentence-transformers.

    Args:
        path: The folder.
        check: Compare every file with its digest (15 ms for the shipped model).
        name: The name that the user gave; a model of the hub is called by it.

    Raises:
        ModelError: A file is missing or altered, or the model is of a sort that termweave does not run; the message says which.
    """
    if (path / MANIFEST).is_file():
        return ModelFolder.read(path, check=check)
    return sentence_layout.read(path, name if hub.named(name) else path.name)
