"""Repeat requests: decide which failures pass by themselves, how long to pause between attempts, and when to give up.

An `Engine` repeats only calls that change nothing, four times. A build asks for more (`Engine.patient`): then every request
that the server turned away is repeated until the patience (a number of seconds) is over, and the pauses follow the server's ``Retry-After``.
The user is told when a build waits for a server that is away, and when the work goes on.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import EngineError, EngineUnreachable, for_python
from termweave.support.messages import clipped

T = TypeVar("T")
#: The server did not carry the request out: any request may be sent again.
TURNED_AWAY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
#: A proxy lost the answer: the request may have been carried out.
_LOST = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
_ATTEMPTS = 4
#: Seconds for which requests fail before that is said: most failures pass at once, also that of one node of several.
_NOTICEABLE = 2.0
#: Seconds between two sentences about the same outage, and until the first one about a request without an answer.
_REMINDER = 10.0
#: Most characters of the reason why a server is away.
_LONGEST = 200
#: Endpoints whose POST changes nothing.
_READING = frozenset({"_search", "_msearch", "_mget", "_count", "_analyze", "_validate", "_refresh", "_termvectors"})
#: Seconds: the first pause is at most `_FIRST_PAUSE`, each further one at most twice as long as the one before.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: The shortest time-out of a repeated request, in seconds, however little of the patience is left.
_SHORTEST_TIMEOUT = 1.0


def log(sentence: str) -> None:
    """Log a sentence as a warning, which a Python program prints unless it decides otherwise."""
    logging.getLogger("termweave.engine").warning("%s", for_python(sentence))


class Outage:
    """Tells the user that the server is away or takes no work, reminds of it every `_REMINDER` seconds, and tells when the outage is over.

    Threads may share it.

    Attributes:
        say: Prints a sentence.
    """

    def __init__(self, say: Callable[[str], None] = log) -> None:
        self.say = say
        self._lock = threading.Lock()
        self._heard = -math.inf
        self._error: EngineError | None = None
        self._began = self._until = 0.0
        self._late = self._said = self._due = self._again = self._refused = False

    @property
    def _lasts(self) -> bool:
        return self._error is not None and not self._refused

    def failed(self, error: EngineError, sent: float, until: float, *, late: bool = False, again: bool = True) -> None:
        """Note that a request failed and will be repeated.

        If the server answered other requests in the meantime, a request without an answer was slow, and the server is not away.

        Args:
            error: The error with which the request failed.
            sent: Time at which the request was sent (`time.monotonic`, like all times here).
            until: Time at which the patience ends.
            late: Whether the request has not failed yet, but has no answer for long: the outage began when the request was sent, and
                the server counts as slow, even if the request fails later.
            again: Whether the request is repeated until the patience ends.
        """
        with self._lock:
            if late and self._lasts:  # the outage is known already, and lasts longer than this request
                return
            if not late and isinstance(error, EngineUnreachable) and self._heard > sent:
                return
            if not self._lasts:
                self._began, self._said, self._late = sent if late else time.monotonic(), False, False
            self._late = late or (self._late and isinstance(error, EngineUnreachable))  # a server that says no is not slow
            self._error, self._until, self._again, self._refused = error, until, again, False
            if not self._due:
                self._speak_after(_NOTICEABLE - (time.monotonic() - self._began))

    def _speak_after(self, seconds: float) -> None:
        self._due = True
        timer = threading.Timer(max(0.0, seconds), self._speak)
        timer.daemon = True
        timer.start()

    def _speak(self) -> None:
        """Tell the user that the server is away, or still away, if the outage has not ended."""
        with self._lock:  # or another thread could say first that the server answers again
            self._due = False
            now = time.monotonic()
            if self._error is None or self._refused or now >= self._until:
                return
            if now - self._began < _NOTICEABLE:  # this timer was set for an earlier outage
                self._speak_after(_NOTICEABLE)
                return
            left = f"up to {self._until - now:.0f} s"
            if self._said:
                sentence = f"Still waiting for the server after {now - self._began:.0f} s, {left} more."
            else:
                reason = clipped(self._error.message, _LONGEST)
                promise = "; the work goes on by itself" if self._again else ""
                sentence = f"{reason} Waiting for the server, {left}{promise}."
            self._said = True
            with suppress(OSError):  # nobody reads any more
                self.say(sentence)
            self._speak_after(_REMINDER)

    @contextmanager
    def watching(self, subject: str, limit: float, *, again: bool) -> Iterator[None]:
        """Watch the request in the body of a `with` statement: tell the user if neither it nor any other request is answered for long.

        Args:
            subject: The beginning of the sentence: "OpenSearch has not answered GET /".
            limit: Seconds that the request may take.
            again: Whether the request is repeated if it fails.
        """
        sent = time.monotonic()
        answered = threading.Event()

        def watch() -> None:
            silent_since = sent
            while not answered.wait(silent_since + _REMINDER - time.monotonic()):
                if time.monotonic() - max(sent, self._heard) >= _REMINDER:
                    error = EngineUnreachable(f"{subject} for {time.monotonic() - sent:.0f} s.")
                    self.failed(error, sent, sent + limit, late=True, again=again)
                    return
                silent_since = self._heard

        threading.Thread(target=watch, name="termweave-watch", daemon=True).start()
        try:
            yield
        finally:
            answered.set()

    def heard(self) -> None:
        """Note that the server answered a request, if only with an error."""
        self._heard = time.monotonic()

    def refused(self) -> None:
        """Note that the server answered with a lasting error: it is not away, but only the next success shows whether the work goes on."""
        self._refused = True

    def answered(self, sent: float) -> None:
        """Note that a request succeeded, and tell the user if this ends an outage.

        While an exception is being handled, only requests that tidy up succeed, and nothing is told.

        Args:
            sent: Time at which the request was sent. A request sent before the outage began does not show that the server is back.
        """
        if self._error is None or sys.exception() is not None:  # as nearly always the first: no lock is needed
            return
        with self._lock:
            if self._error is None or (sent < self._began and not self._late):
                return
            self._error = None
            if self._said:
                with suppress(OSError):
                    self.say(f"The server has answered after {time.monotonic() - self._began:.0f} s; the work goes on.")


class Retries:
    """Decides how often a failed request is repeated. Threads may share an object.

    Args:
        patience: Seconds for which every request is repeated, counted from its first failure; None: calls that change nothing are
            repeated four times. A server that never answered gets no patience: its address is more likely wrong.
        outage: Tells the user that the server is away or back, while there is patience.

    Attributes:
        patience: As the argument.
        outage: As the argument.
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
        """Call a function until it succeeds, or until no further attempt is allowed; return its result.

        Args:
            call: The function, which sends a request. Its argument is the most seconds that this attempt may take; None: the usual
                time-out holds.
            repeatable: Whether the request has the same effect if it is carried out twice.
            once: Call only once, whatever happens. The caller repeats the request itself, and reports to `outage` itself.
            limit: The most seconds for all attempts together, if there is no patience; None: no limit.

        Raises:
            EngineError: The last attempt's error.
        """
        began = time.monotonic()
        failed, attempt = None, 0  # when the first attempt had failed, and how many have
        until = end = None  # when the last attempt begins, and the end of the patience
        while True:
            sent = time.monotonic()
            try:
                result = self._attempt(call, until, once=once)
            except EngineError as error:
                turned_away = isinstance(error, EngineResponseError) and error.status in TURNED_AWAY
                if once or not (is_temporary(error) and (repeatable or (turned_away and self.patience is not None))):
                    raise
                if failed is None:
                    failed = time.monotonic()
                    strange = isinstance(error, EngineUnreachable) and not self._answered
                    end = None if self.patience is None or strange else self._end(self.patience)
                    until = end if end is not None or limit is None else began + limit
                attempt += 1
                if end is not None:
                    self.outage.failed(error, sent, end)
                if (until is not None and time.monotonic() >= until) or (end is None and attempt == _ATTEMPTS):
                    raise
                time.sleep(_pause(attempt, getattr(error, "retry_after", None) or 0.0, end))
            else:
                if failed is not None:
                    self.waited += time.monotonic() - failed
                return result

    def _attempt(self, call: Callable[[float | None], T], until: float | None, *, once: bool) -> T:
        """Call the function once, with the seconds left until the time `until` (None: no limit), and note whether the server answers."""
        sent = time.monotonic()
        try:
            result = call(None if until is None else max(_SHORTEST_TIMEOUT, until - sent))
        except EngineError as error:
            if not isinstance(error, EngineUnreachable):
                self._hear(over=not (once or is_temporary(error)))
                if not is_temporary(error):
                    self.outage.refused()
            raise
        self._hear(over=not once)
        if not once:
            self.outage.answered(sent)
        return result

    def _hear(self, *, over: bool) -> None:
        """Note that the server answered. `over`: whether this ends a series of failures, so that the next failure gets the whole patience."""
        self._answered = True
        self.outage.heard()
        if over:
            self._failing_since = None

    def _end(self, patience: float) -> float:
        """The time at which repeating ends. All requests share one period of patience, which begins with the first failure after a success."""
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


def may_be_sent_twice(method: str, path: str, *, patient: bool) -> bool:
    """Whether sending a request twice has the effect of sending it once: it only reads, or, in a patient build, sets values anew."""
    if method == "PUT":
        return patient and endpoint(path) in {"_settings", "_mapping"}
    return method in {"GET", "HEAD"} or (method == "POST" and endpoint(path) in _READING)


def endpoint(path: str) -> str:
    """The last part of a request's path: "_search" of "/docs/_search"."""
    return path.partition("?")[0].rsplit("/", 1)[-1]


def is_temporary(error: BaseException) -> bool:
    """Whether the same request may succeed later, because the error says that the server is overloaded or away."""
    if isinstance(error, EngineResponseError):
        return error.status in TURNED_AWAY | _LOST
    return isinstance(error, EngineUnreachable)


def _pause(attempt: int, retry_after: float, end: float | None) -> float:
    """Seconds until the next attempt: random, so that clients that failed together do not return together, and mostly at least `retry_after`.

    `end` is the time at which the patience ends, which the pause does not exceed; None: a search waits, and the pause stays short.
    """
    pause = random.SystemRandom().uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (attempt - 1)))
    if end is None:  # somebody waits for the answer to a search
        return max(pause, min(retry_after, _LONGEST_PAUSE))
    return min(max(pause, retry_after), max(0.0, end - time.monotonic()))  # the last attempt is made when patience is over
