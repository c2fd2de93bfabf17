"""Folders and files that only their owner can read, because they contain texts of corpora, questions, grades or clicks.

Scratch folders are for the work of one process, which locks them until it ends (`flock`, which also keeps systemd-tmpfiles away). One
that nobody locks is what a killed process left: the next process that needs such a folder removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRATCH = "termweave-scratch-"
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


def open_private(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """Open a file for writing. A new one gets mode 0600; one that exists, and a device, keeps its own.

    Raises:
        OSError: The file cannot be opened.
    """
    return open(path, mode, opener=lambda file, flags: os.open(file, flags, _FILE), **options)


def scratch() -> Path:
    """The folder of this process in the temporary folder, which is removed when the process ends. Only its user can enter it.

    Raises:
        OSError: It cannot be made.
    """
    place = (os.getpid(), tempfile.gettempdir())
    if not (folder := _scratch_of(*place)).is_dir():  # somebody emptied the temporary folder
        _scratch_of.cache_clear()
        folder = _scratch_of(*place)
    return folder


@lru_cache(maxsize=1)
def _scratch_of(process: int, parent: str) -> Path:
    removal = ExitStack()
    folder = _new_scratch(Path(parent), _SCRATCH, removal)
    atexit.register(lambda: removal.close() if os.getpid() == process else None)  # a fork must not remove what its parent uses
    return folder


@contextmanager
def scratch_in(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder with mode 0700 that is removed in the end. Those that killed processes left beside it are removed first.

    Args:
        parent: Folder in which it is made; it must exist.
        prefix: Beginning of its name, and of the abandoned ones.

    Raises:
        OSError: It cannot be made.
    """
    with ExitStack() as removal:
        yield _new_scratch(parent, prefix, removal)


def _new_scratch(parent: Path, prefix: str, removal: ExitStack) -> Path:
    """Remove abandoned folders, make a new one and lock it, until `removal` is closed."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            status = path.lstat()  # in a temporary folder anybody can make a link of this name
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                with _lock(path):
                    shutil.rmtree(path, ignore_errors=True)
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        try:
            removal.enter_context(_lock(folder))
        except (BlockingIOError, FileNotFoundError):  # another process took it for abandoned before it was locked
            continue
        except OSError:  # a file system without locks: nobody else can lock it, and remove it, either
            pass
        removal.callback(shutil.rmtree, folder, ignore_errors=True)
        if folder.is_dir():
            return folder


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: The file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _close(path: Path, mode: int) -> None:
    status = path.stat()
    if status.st_mode & _OTHERS and status.st_uid == os.geteuid():  # somebody else's is theirs to decide about
        path.chmod(mode)
