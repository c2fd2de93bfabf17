"""The throttle of the bulk sender: how large batches are, how long all workers pause after a failure, and when sending ends.

All workers share one throttle. An overloaded server does not recover if each connection counts its own failures and they take turns:
a failure on one connection is a pause for all, and pauses grow until a request succeeds. Only the monotonic clock is read, so setting
the clock cannot end or prolong a pause.
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
#: Batches grow while a request takes fewer seconds than the first number, and shrink when it takes more than the second.
_QUICK, _SLOW = 0.25, 2.0
_GROW, _SHRINK = 1.5, 0.7
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 20.0
#: The size limit never falls below this many bytes.
_LEAST_LIMIT = 64 * 1024


class Throttle:
    """The throttle of one sender.

    Args:
        patience: Seconds without progress after which a failure ends the sending.
        stop: Set when nothing more is to be sent; ends pauses.

    Attributes:
        size: Bytes that the next batch should have, between 1 and 16 MB.
        waited: Seconds in which nothing succeeded although requests were sent.
        last_error: The last failure since something succeeded; None: the last request succeeded.
    """

    def __init__(self, patience: float, stop: threading.Event) -> None:
        self.size = FIRST
        self.waited = 0.0
        self.last_error: EngineError | None = None
        self._patience = patience
        self._stop = stop
        self._lock = threading.Lock()
        self._size_limit = LARGEST
        self._failures = 0
        self._pause_until = 0.0
        self._failing_since: float | None = None

    def wait(self) -> int:
        """Wait until the pause that all workers share is over.

        Returns:
            A ticket for `succeeded` and `failed`. A failure whose request began before a pause does not prolong the pause.
        """
        while not self._stop.is_set():
            with self._lock:
                left, ticket = self._pause_until - time.monotonic(), self._failures
            if left <= 0:
                return ticket
            self._stop.wait(left)
        return self._failures

    def patience_left(self) -> float | None:
        """Return the seconds until failures end the sending; None: the last request succeeded."""
        with self._lock:
            return None if self._failing_since is None else self._failing_since + self._patience - time.monotonic()

    def succeeded(self, ticket: int, size: int, seconds: float) -> None:
        """Note that a request was answered and all its documents are acknowledged or refused.

        Args:
            ticket: What `wait` returned before the request.
            size: Bytes of the request.
            seconds: How long it took.
        """
        with self._lock:
            if self._failing_since is not None:
                self.waited += time.monotonic() - self._failing_since
            self._failing_since = self.last_error = None
            if ticket == self._failures:
                self._failures = 0
            if seconds > _SLOW:
                self.size = max(SMALLEST, int(self.size * _SHRINK))
            elif seconds < _QUICK and size >= self.size // 2:  # a small last batch says nothing about large ones
                self.size = min(self._size_limit, int(self.size * _GROW))

    def failed(self, ticket: int, error: EngineError, *, progress: bool = False) -> None:
        """Note that a request, or some of its documents, must be sent again: all workers pause, each time longer.

        Args:
            ticket: What `wait` returned before the request.
            error: The error that is raised if patience is over. Its `retry_after`, if it has one, is the shortest pause.
            progress: Whether some of the documents were acknowledged or refused.

        Raises:
            EngineError: `error`, if nothing has succeeded for as long as patience lasts.
        """
        now = time.monotonic()
        with self._lock:
            self.last_error = error
            if progress:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = now
            end = None if self._failing_since is None else self._failing_since + self._patience
            if end is not None and now >= end:
                raise error
            if ticket != self._failures:  # another worker failed first: its pause holds for this one, too
                return
            self._failures += 1
            self.size = max(SMALLEST, self.size // 2)
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._failures - 1))
            pause = random.uniform(longest / 2, longest)  # noqa: S311 - not a secret
            pause = max(pause, getattr(error, "retry_after", None) or 0.0)
            self._pause_until = now + pause if end is None else min(now + pause, end)  # the last attempt is made at the end

    def limit_size(self, size: int) -> None:
        """Note that the server takes no request of this many bytes: batches stay below half of it."""
        with self._lock:
            self._size_limit = max(_LEAST_LIMIT, min(self._size_limit, size // 2))
            self.size = min(self.size, self._size_limit)
