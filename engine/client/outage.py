"""One line when a build begins to wait for a server that is away, and one when the server answers again."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from termweave.errors import EngineUnreachable, for_python
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.errors import EngineError

#: Seconds for which a server that answers (429, 503) fails before that is said: most such failures pass at once.
_NOTICEABLE = 2.0
_LONGEST = 200


def log(sentence: str) -> None:
    """Where a Python program sees the lines: a logger's warnings are printed unless the program decides otherwise."""
    logging.getLogger("termweave.engine").warning("%s", for_python(sentence))


class Outage:
    """Says that the server is away, once for each time it is. Threads may share it.

    Args:
        say: Prints a sentence.
    """

    def __init__(self, say: Callable[[str], None] = log) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._began: float | None = None
        self._said = False

    def failed(self, error: EngineError, patience: float) -> None:
        """Note that a request failed and will be repeated.

        Args:
            error: Why it failed.
            patience: Seconds, from the first failure on, for which requests are repeated.
        """
        with self._lock:
            now = time.monotonic()
            self._began = now if self._began is None else self._began
            lasted = now - self._began
            if self._said or lasted >= patience or (lasted < _NOTICEABLE and not isinstance(error, EngineUnreachable)):
                return
            self._said = True
            # Under the lock: or another thread could say first that the server answers again.
            self._say(
                f"{clipped(error.message, _LONGEST)} Waiting for the server, up to {patience - lasted:.0f} s; "
                "the work goes on by itself when it answers."
            )

    def answered(self, sent: float) -> None:
        """Note that a request succeeded.

        Args:
            sent: When it was sent (`time.monotonic`). One that was on its way when another failed does not show that the server is back.
        """
        if self._began is None:  # as nearly always: no lock is needed
            return
        with self._lock:
            began, said = self._began, self._said
            if began is None or sent < began:
                return
            self._began, self._said = None, False
            if said:
                self._say(f"The server answers again, after {time.monotonic() - began:.0f} s; the work goes on.")
