"""One process at a time, among processes of one host; the system frees a lock with its holder."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def one_at_a_time(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock `path`, an empty file that stays; whoever comes second waits.

    Args:
        path: Its folder must be there.
        waiting: Called once where another process holds it, before the wait.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
