"""Files that are written as a whole: a reader sees the old content or the new, never a part."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident

#: Mode of new files before the umask is applied, for everybody and for the owner only.
_MODE, _PRIVATE_MODE = 0o666, 0o600


def write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Replace a file in one step.

    Args:
        path: The file; its folder must exist.
        content: The whole content.
        private: Make the file readable for its owner only.

    Raises:
        OSError: The file cannot be written. It keeps its old content, and no temporary file is left.
    """
    # Two processes or two threads may write the same file.
    temporary = path.with_name(f"{_prefix(path)}{os.getpid()}-{get_ident()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE_MODE if private else _MODE)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def left_over(path: Path, other: Path) -> bool:
    """Whether `other` is the temporary file of a process that was killed while it wrote `path`."""
    return other.name.startswith(_prefix(path))


def _prefix(path: Path) -> str:
    return f".{path.name}."
