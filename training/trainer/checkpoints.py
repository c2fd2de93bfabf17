"""Find the latest checkpoint of a fit."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Written last: without it a checkpoint does not count.
HISTORY = "history.json"


def latest(home: Path) -> Path | None:
    """Return the newest complete checkpoint in `home`, or None; remove incomplete ones."""
    complete = []
    for folder in home.glob("checkpoint-*"):
        if (folder / HISTORY).is_file():
            complete.append(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
