"""Repeated requests: which failures pass by themselves, how long to pause between attempts, and when to give up.

An `Engine` repeats only calls that change nothing, four times. A build asks for more (`Engine.patient`): then every request
that the server turned away is repeated until the patience is over, and the pauses follow the server's ``Retry-After``. It says in one line that
it waits for a server that is away, and in another that the server answers again.
"""

from __future__ import annotations

import logging
import threading
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import EngineError, EngineUnreachable, for_python
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
#: The server did not carry the request out: any request may be sent again.
_TURNED_AWAY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
#: A proxy lost the answer: the request may have been carried out.
_LOST = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
_ATTEMPTS = 4
#: Seconds for which a server that answers (429, 503) fails before that is said: most such failures pass at once.
_NOTICEABLE = 2.0
#: Most characters of the reason why a server is away.
_LONGEST = 200
#: Endpoints whose POST changes nothing.
_READING = frozenset({"_search", "_msearch", "_mget", "_count", "_analyze", "_validate", "_refresh", "_termvectors"})
#: Endpoints whose PUT does the same when it is carried out twice.
_SETTING = frozenset({"_settings", "_mapping"})
#: Seconds: the first pause is at most `_FIRST_PAUSE`, each further one at most twice as long as the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: The shortest time-out of a repeated request, in seconds, however little of the patience is left.
_SHORTEST_TIMEOUT = 1.0


def log(sentence: str) -> None:
    """Log a sentence as a warning, which a Python program prints unless it decides otherwise."""
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


class Retries:
    """Decides how often a failed request is repeated. Threads may share it.

    Args:
        patience: Seconds for which every request is repeated, counted from its first failure; None: calls that change nothing are
            repeated four times. A server that never answered is not waited for: its address is more likely wrong.
        outage: Says that the server is away and that it is back, where there is patience.

    Attributes:
        patience: The same.
        outage: The same.
        waited: Seconds that requests spent on failures and pauses until they succeeded.
    """

    def __init__(self, patience: float | None = None, outage: Outage | None = None) -> None:
        self.patience = patience
        self.outage = outage or Outage()
        self.waited = 0.0
        self._lock = threading.Lock()
        self._answered = False
        #: When the first request failed since the last one that succeeded.
        self._failing_since: float | None = None

    def run(self, call: Callable[[float | None], T], *, repeatable: bool, once: bool = False, limit: float | None = None) -> T:
        """Call until it succeeds.

        Args:
            call: The request. It gets the seconds that this attempt may take at most; None: as long as usual.
            repeatable: Whether the request does the same when it is carried out twice.
            once: Call only once, whatever happens.
            limit: Seconds for all attempts together, without patience; None: no limit.

        Raises:
            EngineError: The last attempt's error.
        """
        began = time.monotonic()
        failed, attempt = None, 0  # when the first attempt had failed, and how many have
        until = end = None  # when the last attempt begins, and the end of the patience
        while True:
            try:
                result = self._attempt(call, until, repeatable=repeatable, once=once)
            except EngineError as error:
                if once or not self._may_repeat(error, repeatable=repeatable):
                    raise
                if failed is None:
                    failed = time.monotonic()
                    strange = isinstance(error, EngineUnreachable) and not self._answered
                    end = None if self.patience is None or strange else self._end(self.patience)
                    until = end if end is not None or limit is None else began + limit
                attempt += 1
                if (until is not None and time.monotonic() >= until) or (end is None and attempt == _ATTEMPTS):
                    raise
                time.sleep(_pause(attempt, getattr(error, "retry_after", None) or 0.0, end))
            else:
                if failed is not None:
                    self.waited += time.monotonic() - failed
                return result

    def _attempt(self, call: Callable[[float | None], T], end: float | None, *, repeatable: bool, once: bool) -> T:
        """Call once. A failure after which the request is sent again may be the first that makes the outage worth a line.

        It is sent again by `run`, or with `once` by a caller who wants one attempt at a time.
        """
        sent = time.monotonic()
        try:
            result = call(None if end is None else max(_SHORTEST_TIMEOUT, end - sent))
        except EngineError as error:
            self._answered = self._answered or not isinstance(error, EngineUnreachable)
            if not is_temporary(error):  # the server answers
                self._failing_since = None
                self.outage.answered(sent)
            elif self.patience is not None and self._answered and (once or self._may_repeat(error, repeatable=repeatable)):
                self.outage.failed(error, self.patience)
            raise
        self._answered = True
        self._failing_since = None
        self.outage.answered(sent)
        return result

    def _may_repeat(self, error: BaseException, *, repeatable: bool) -> bool:
        if isinstance(error, EngineResponseError) and error.status in _TURNED_AWAY:
            return repeatable or self.patience is not None
        return repeatable and is_temporary(error)

    def _end(self, patience: float) -> float:
        """The time at which repeating ends. All requests share one patience, which begins with the first failure after a success."""
        now = time.monotonic()
        with self._lock:
            if self._failing_since is None:
                self._failing_since = now
            return self._failing_since + patience


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Read the header ``Retry-After``, which holds seconds or a date; None if it is missing or cannot be read.

    Example:
        >>> seconds_to_wait({"Retry-After": "3"})
        3.0
    """
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def changes_nothing(method: str, path: str) -> bool:
    """Whether a request only reads, so that sending it twice does no harm."""
    return method in {"GET", "HEAD"} or (method == "POST" and endpoint(path) in _READING)


def sets_again(method: str, path: str) -> bool:
    """Whether a request sets values, so that sending it twice leaves the same values."""
    return method == "PUT" and endpoint(path) in _SETTING


def endpoint(path: str) -> str:
    """The last part of a path: "_search"."""
    return path.partition("?")[0].rsplit("/", 1)[-1]


def is_temporary(error: BaseException) -> bool:
    """Whether the same request may succeed later: the server is overloaded or away."""
    if isinstance(error, EngineResponseError):
        return error.status in _TURNED_AWAY | _LOST
    return isinstance(error, EngineUnreachable)


def _pause(attempt: int, asked: float, end: float | None) -> float:
    """Seconds until the next attempt: random, so that clients that failed together do not come back together."""
    import random  # noqa: PLC0415

    pause = random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (attempt - 1)))  # noqa: S311 - not a secret
    if end is None:  # somebody waits for the answer to a search
        return max(pause, min(asked, _LONGEST_PAUSE))
    return min(max(pause, asked), max(0.0, end - time.monotonic()))  # the last attempt is made when patience is over
