"""Locks between the processes of one host. The system releases a lock when its process ends, so none is left behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Held(Exception):
    """Another process holds the lock.

    Attributes:
        note: The note that the other process wrote; "": that process has just taken the lock and has not written it yet.
    """

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


@contextmanager
def noted(path: Path, note: str) -> Iterator[None]:
    """Take a lock without waiting, and hold it with a note for other processes that want the lock.

    Args:
        path: File of the lock. Its folder must exist; the empty file stays afterwards.
        note: Text about the action of this process, which other processes show: "start (process 123)".

    Raises:
        Held: Another process holds the lock.
    """
    # Opened for appending: opening for writing would erase the note of the process that holds the lock.
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Held(file.read().strip()) from None
        file.truncate(0)
        file.write(note)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def one_at_a_time(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, waiting until no other process holds it. The lock file is removed afterwards.

    Args:
        path: File of the lock. Its folder must exist.
        waiting: Called before the wait, if another process holds the lock.
    """
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            # If the lock file was deleted while we waited, open it again: another process may now lock a new file.
            if _is_at(path, file):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
