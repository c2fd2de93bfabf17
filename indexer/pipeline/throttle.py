"""Pace: how large batches are, how long the whole sender pauses after trouble, and when it gives up.

One pace is shared by all workers. A server that is overloaded or away is not helped when each connection counts its
own failures and they take turns at knocking: trouble on one of them is a pause for all, and the pause grows until
something goes through again. Only the monotonic clock is read, so a clock that is set cannot end or prolong a pause.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from termweave.errors import EngineError

MB = 1024 * 1024
#: Bytes of one `_bulk` request.
SMALLEST, FIRST, LARGEST = 1 * MB, 2 * MB, 16 * MB
#: Seconds one request should take: long enough that its overhead is nothing, short enough to be retried, stopped and reported on.
_QUICK, _SLOW = 0.25, 2.0
_GROW, _SHRINK = 1.5, 0.7
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 20.0


class Pace:
    """Shared by the workers of a sender.

    Args:
        patience: Seconds without any progress after which trouble is an error.
        stop: Set when nothing more is to be sent; ends pauses.

    Attributes:
        size: Bytes that the next batch should have, between 1 and 16 MB.
    """

    def __init__(self, patience: float, stop: threading.Event) -> None:
        self.size = FIRST
        self._patience = patience
        self._stop = stop
        self._lock = threading.Lock()
        self._ceiling = LARGEST
        self._troubles = 0
        self._until = 0.0
        self._since: float | None = None

    def wait(self) -> int:
        """Wait until the common pause is over.

        Returns:
            What `trouble` and `went` must be told: trouble that began before a pause does not lengthen it.
        """
        while not self._stop.is_set():
            with self._lock:
                left, now = self._until - time.monotonic(), self._troubles
            if left <= 0:
                return now
            self._stop.wait(left)
        return self._troubles

    def went(self, ticket: int, size: int, seconds: float) -> None:
        """A request was answered and all its items are settled."""
        with self._lock:
            self._since = None
            if ticket == self._troubles:
                self._troubles = 0
            if seconds > _SLOW:
                self.size = max(SMALLEST, int(self.size * _SHRINK))
            elif seconds < _QUICK and size >= self.size // 2:  # a small rest at the end says nothing of large ones
                self.size = min(self._ceiling, int(self.size * _GROW))

    def trouble(self, ticket: int, error: EngineError, *, progress: bool = False) -> None:
        """A request, or some of its items, must be sent again: everybody pauses, longer each time.

        Args:
            ticket: What `wait` returned before the request.
            error: What to raise when patience is at its end.
            progress: Some of its items were settled.
        """
        now = time.monotonic()
        with self._lock:
            if progress:
                self._since = None
            elif self._since is None:
                self._since = now
            if ticket != self._troubles:  # another worker met the same trouble first
                return
            self._troubles += 1
            self.size = max(SMALLEST, self.size // 2)
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._troubles - 1))
            self._until = now + random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret
            if self._since is not None and self._until > self._since + self._patience:
                raise error

    def too_large(self, size: int) -> None:
        """The server takes no request of this size; ask for no such batch again."""
        with self._lock:
            self._ceiling = max(64 * 1024, min(self._ceiling, size // 2))
            self.size = min(self.size, self._ceiling)
