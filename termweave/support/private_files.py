"""Folders and files that only their owner can read, because they contain texts of corpora, questions, grades or clicks.

Scratch folders are for the work of one process, which locks its folder until it ends (`flock`, which also keeps systemd-tmpfiles away). An
unlocked scratch folder was left by a killed process: the next process that needs a scratch folder removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

_SCRATCH = "termweave-scratch-"
_FOLDER, _FILE = 0o700, 0o600
#: Permission bits of people other than the owner.
_OTHERS = 0o077


def make_folder(path: Path) -> None:
    """Make a folder with mode 0700; if it exists, take away the rights of other users.

    Folders above it are made with the usual mode, because other users' files may lie in them.

    Raises:
        OSError: The folder cannot be made.
    """
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
    _close(path, _FOLDER)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600; if it exists, take away the rights of other users.

    Raises:
        OSError: The file cannot be made.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE))
    _close(path, _FILE)


def open_private(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """Open a file for writing. A new file gets mode 0600; an existing file, or a device, keeps its mode.

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
    """Make a scratch folder with mode 0700, for a `with` statement that removes it in the end. Folders left by killed processes are removed first.

    Args:
        parent: Folder in which the scratch folder is made; it must exist.
        prefix: Beginning of the scratch folder's name, and of the names of abandoned folders.

    Raises:
        OSError: It cannot be made.
    """
    with ExitStack() as removal:
        yield _new_scratch(parent, prefix, removal)


def _new_scratch(parent: Path, prefix: str, removal: ExitStack) -> Path:
    """Remove abandoned scratch folders, and make and lock a new one, which is removed when `removal` is closed."""
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
        BlockingIOError: Another process holds the lock.
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
