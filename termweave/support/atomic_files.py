"""Files that appear whole: written beside their place and moved there, so that a reader finds the old content or the new."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step.

    Args:
        path: Its folder must be there.
        content: All of it.

    Raises:
        OSError: It cannot be written; the file is as it was, and nothing lies beside it.
    """
    beside = path.with_name(f"{_unfinished(path)}{os.getpid()}")  # two processes may write the same file
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def left_over(path: Path, other: Path) -> bool:
    """Whether `other` is what a process left that was killed while it wrote `path`."""
    return other.name.startswith(_unfinished(path))


def _unfinished(path: Path) -> str:
    return f".{path.name}."
