"""Folders and files that only their owner can read, because they contain terms and texts of corpora."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER, _FILE = 0o700, 0o600
#: Permission bits of people other than the owner.
_OTHERS = 0o077


def make_folder(path: Path) -> None:
    """Make a folder with mode 0700, or take the rights of others away from one that exists.

    Folders above it are made with the usual mode: other users' files may lie beside it.

    Raises:
        OSError: The folder cannot be made.
    """
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    _close(path, _FOLDER)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600, or take the rights of others away from one that exists.

    Raises:
        OSError: The file cannot be made.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
    _close(path, _FILE)


def _close(path: Path, mode: int) -> None:
    status = path.stat()
    if status.st_mode & _OTHERS and status.st_uid == os.geteuid():  # somebody else's is theirs to decide about
        path.chmod(mode)
