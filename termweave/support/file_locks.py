"""Locks among the processes of one host; the system frees a lock with its holder, so none goes stale."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO


class Held(Exception):
    """Another process holds the lock.

    Attributes:
        note: What it says of itself; "" where it has only just begun.
    """

    def __init__(self, note: str) -> None:
        super().__init__(note)
        self.note = note


@contextmanager
def noted(path: Path, note: str) -> Iterator[None]:
    """Hold the lock `path`, a file that says who holds it, or not at all.

    Args:
        path: Its folder must be there; the file stays there, empty.
        note: What others are told.

    Raises:
        Held: Another process holds it.
    """
    # Opened for appending: opening for writing would empty the holder's note.
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
    """Hold the lock `path`, an empty file that is there as long as somebody holds it; whoever comes second waits.

    Who waited for a file that its holder then removed does not hold what the next one finds at `path`, and begins anew.

    Args:
        path: Its folder must be there.
        waiting: Called where another process holds it, before the wait.
    """
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            if _lies_at(path, file):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _lies_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
