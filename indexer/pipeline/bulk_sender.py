"""The bulk sender: a few threads send documents in `_bulk` requests, and send again the documents that the server did not take.

Sending twice does no harm, because a document's `_id` never changes; verification proves afterwards that everything arrived. So a batch
whose response was lost is simply sent again.

=======================  ========================================================================================
429, 500, 502, 503, 504  and lost connections: only the documents concerned are sent again, after a pause of all workers that grows
413                      the batch is halved, down to a single document, which is refused. The same is done after a 429 which says that
                         the request alone exceeds the server's indexing pressure limit
400 for a document       it is refused: it becomes a dead letter with the server's reason
409 for a document       a version conflict: the document is there, so it counts as acknowledged
anything else            sending ends; the ledger lists what is missing, and the same command resumes
=======================  ========================================================================================

All workers share one throttle. An overloaded server does not recover if each connection counts its own failures and they take turns:
a failure on one connection is a pause for all, and pauses grow until a request succeeds. Only the monotonic clock is read, so setting
the clock cannot end or prolong a pause.
"""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.catalog.lineage import exists
from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.server_errors import block_hint, known_status
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.generations.index_setup import writer

if TYPE_CHECKING:
    from termweave.indexer.ledger.build_lock import Lease

#: Parameters of each `_bulk` request.
PARAMETERS = {
    "pipeline": "_none",
    # How long the server waits for a missing shard before it answers 503. Its default, 60 s, is as long as we wait for the response.
    "timeout": "20s",
    # The parts of a response that are read: a twentieth of it.
    "filter_path": "items.*.status,items.*.error.reason,items.*.error.caused_by.reason",
}
#: And of those to a generation.
_PARAMETERS = {"require_alias": True, **PARAMETERS}
#: Seconds after which `BulkSender.outcomes` yields an empty outcome if there was none.
_TICK = 0.2
#: The shortest time-out of a repeated request, in seconds, however little patience is left.
_SHORTEST_TIMEOUT = 1.0
#: Statuses of an overloaded or unavailable server: the same document may be taken later.
_LATER = frozenset({429, 500, 502, 503, 504})
#: Statuses of a document that is itself the problem.
_OWN_FAULT = frozenset({400, 413})
#: In the reason of a 429 (OpenSearch 3.6.0): bytes of the request, and bytes of all requests that the server takes at a time.
_PRESSURE = re.compile(r"operation_bytes=(\d+), max_\w+_bytes=(\d+)")
MB = 1024 * 1024
#: Bytes of one `_bulk` request.
SMALLEST, FIRST, LARGEST = 1 * MB, 2 * MB, 16 * MB
#: Batches grow while a request takes fewer seconds than the first number, and shrink when it takes more than the second.
_QUICK, _SLOW = 0.25, 2.0
_GROW, _SHRINK = 1.5, 0.7
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 20.0
#: The size limit never falls below this many bytes.
_LEAST_LIMIT = 64 * 1024
_LATER_HINT = "See the log of the server, and lower --workers. Run the command again: it resumes."


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One document or passage on its way to the server.

    Attributes:
        id: Source id.
        lines: Action and body as NDJSON, each with its newline.
        digest: Digest of its encoding, for the ledger.
    """

    id: str
    lines: bytes
    digest: int


@dataclass
class Outcome:
    """The result of one request for its documents.

    Attributes:
        acknowledged: Documents that the server has: (id, digest).
        refused: Documents that the server will never take: (id, reason).
        again: Documents to send again.
        error: Why documents must be sent again; None: no document must be.
        fatal: The error that ends the sending; None: the sending goes on.
        closed: Whether the generation, or the alias for writing to it, is gone.
    """

    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    again: list[BulkItem] = field(default_factory=list)
    error: EngineError | None = None
    fatal: BaseException | None = None
    closed: bool = False

    def raise_fatal(self) -> None:
        """Raise the error that ends the sending, if there is one."""
        if self.fatal is not None:
            raise self.fatal


def _outcome_of(batch: Sequence[BulkItem], answer: Any, index: str) -> Outcome:
    """Return the outcome of a batch, read from the server's response.

    Args:
        batch: The documents that were sent.
        answer: The response.
        index: The generation, for messages.

    Raises:
        EngineError: The response does not have one entry for each document.
    """
    if len(answer.get("items", ())) != len(batch):
        raise EngineError(
            "The response to _bulk is not one that OpenSearch gives.",
            "Look for a proxy before the server that changes responses.",
        )
    outcome = Outcome()
    for item, entry in zip(batch, answer["items"], strict=True):
        (result,) = entry.values()
        status = known_status(result["status"], reason := reason_of(result))
        if status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.CONFLICT:  # a conflict: the document is there
            outcome.acknowledged.append((item.id, item.digest))
        elif status in _LATER:
            outcome.again.append(item)
            outcome.error = _temporary(status, reason, index)
        elif status in _OWN_FAULT:
            outcome.refused.append((item.id, reason))
        elif status == HTTPStatus.NOT_FOUND:
            outcome.closed = True
            hint = "Run 'termweave index' again, which begins a new generation."
            outcome.fatal = EngineError(f"{index} was deleted while it was being built.", hint)
        else:
            outcome.fatal = EngineError(f"The server takes no documents: {reason} (status {status}).", _hint(reason))
    return outcome


def _exceeded_limit(error: EngineResponseError) -> str:
    """Return the name of the server's size limit that a request exceeds by itself, whatever else the server has to do; "": it exceeds no limit."""
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "http.max_content_length"
    sizes = _PRESSURE.search(error.reason) if error.status == HTTPStatus.TOO_MANY_REQUESTS else None
    return "indexing_pressure.memory.limit" if sizes and int(sizes[1]) > int(sizes[2]) else ""


def _temporary(status: int, reason: str, index: str) -> EngineError:
    """Return the error with which sending ends if a rejected document is still rejected when the patience is used up."""
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return EngineError(
            f"The server cannot write to {index}: {reason}.",
            "A shard is missing: GET /_cluster/allocation/explain says why. When it is back, run the command again: it resumes.",
        )
    return EngineError(f"The server keeps rejecting documents: {reason}.", _hint(reason) if block_hint(reason) else _LATER_HINT)


def _hint(reason: str) -> str:
    return f"{block_hint(reason)} Run the command again when that is fixed: it resumes.".lstrip()


def reason_of(result: dict[str, Any]) -> str:
    """Return why the server did not carry out an action of `_bulk`, with the cause that it names."""
    error = result.get("error") or {}
    cause = error.get("caused_by") or {}
    return ": ".join(part for part in (error.get("reason"), cause.get("reason")) if part) or f"status {result['status']}"


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


class BulkSender:
    """Sends batches in threads of its own.

    Args:
        engine: The server.
        index: The concrete index.
        lease: The lease under which the index is written.
        stop: Event that ends the sending when the open requests are answered; set by the caller, or after a fatal outcome.
        workers: Connections that are used at the same time.
        patience: Seconds to keep trying while the server is overloaded or away and nothing succeeds.

    Attributes:
        throttle: The pace that all workers share.
        taken: How many documents the workers have taken.
    """

    def __init__(self, engine: Engine, index: str, lease: Lease, stop: threading.Event, *, workers: int, patience: float) -> None:
        self.throttle = Throttle(patience, stop)
        self.taken = 0
        self._engine, self._index, self._lease, self._stop = engine, index, lease, stop
        self._path = f"/{writer(index, lease.number)}/_bulk"
        self._workers, self._running = workers, 0
        self._taking = threading.Lock()
        # Bounded: nothing is sent while the loop that checks the lease, the ledger and Ctrl-C is held up.
        self._outcomes: queue.Queue[Outcome | None] = queue.Queue(maxsize=workers)

    def send(self, batches: Iterator[Sequence[BulkItem]]) -> Iterator[Outcome]:
        """Send all batches, which the worker threads take as they become free; yields what `outcomes` yields."""
        for number in range(self._workers):
            # Daemon threads: a server that does not answer must not keep the process alive.
            threading.Thread(target=self._work, args=(batches,), name=f"termweave-send-{number}", daemon=True).start()
            self._running += 1
        yield from self.outcomes()

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of each request until all workers have ended, and an empty one when nothing has happened for 0.2 s."""
        while self._running:
            try:
                outcome = self._outcomes.get(timeout=_TICK)
            except queue.Empty:
                outcome = Outcome()
            if outcome is None:
                self._running -= 1
            else:
                yield outcome

    def _work(self, batches: Iterator[Sequence[BulkItem]]) -> None:
        """Run as a worker thread: send batches until there are no more, and put the outcomes into the queue."""
        try:
            while not self._stop.is_set() and (batch := self._next(batches)) is not None:
                parts = [batch]
                while parts and not self._stop.is_set():
                    parts += self._request(parts.pop())
        except BaseException as error:  # noqa: BLE001 - raised by the thread that reads the outcomes
            self._put(Outcome(fatal=error))
        self._outcomes.put(None)

    def _next(self, batches: Iterator[Sequence[BulkItem]]) -> Sequence[BulkItem] | None:
        with self._taking:
            batch = next(batches, None)
            self.taken += len(batch or ())
        return batch

    def _put(self, outcome: Outcome) -> None:
        if outcome.fatal is not None:
            self._stop.set()
        self._outcomes.put(outcome)

    def _request(self, batch: Sequence[BulkItem]) -> list[Sequence[BulkItem]]:
        """Send a batch in one request; returns the documents that must still be sent, as a list of batches."""
        ticket = self.throttle.wait()
        if self._stop.is_set():
            return []
        body = b"".join(item.lines for item in batch)
        began, timeout = time.monotonic(), self._timeout()
        try:
            answer = self._engine.request("POST", self._path, params=_PARAMETERS, body=body, timeout=timeout, retry=False)
        except EngineResponseError as error:
            if limit := _exceeded_limit(error):
                return self._too_large(batch, len(body), limit)
            if error.status not in _LATER:
                raise
            error.hint = error.hint or _LATER_HINT
            self._failed(ticket, error, began)
            # A server may be too loaded for any request of this size: its limit is in bytes.
            return _halves(batch) if error.status == HTTPStatus.TOO_MANY_REQUESTS or len(body) > SMALLEST else [batch]
        except EngineUnreachable as error:
            hint = f"{error.hint} When it is back, run the command again: it resumes.".lstrip()
            # A request that our patience cut short says nothing new of the server: the error before it does.
            earlier = self.throttle.last_error if timeout is not None and timeout < self._engine.timeout else None
            self._failed(ticket, earlier or EngineUnreachable(error.message, hint), began)
            return _halves(batch) if len(body) > SMALLEST else [batch]
        outcome = _outcome_of(batch, answer, self._index)
        if outcome.closed and exists(self._engine, self._index):
            outcome.fatal = self._lease.lost()
        self._put(outcome)
        if outcome.error is not None and outcome.fatal is None:
            self._failed(ticket, outcome.error, began, progress=len(outcome.again) < len(batch))
            return [outcome.again]
        self.throttle.succeeded(ticket, len(body), time.monotonic() - began)
        if outcome.fatal is None:
            self._engine.outage.answered(began)
        return []

    def _failed(self, ticket: int, error: EngineError, sent: float, *, progress: bool = False) -> None:
        """Pause all workers, and tell the user if failures last; a missing shard counts, too, which the server reports in a response of status 200."""
        self.throttle.failed(ticket, error, progress=progress)
        left = self.throttle.patience_left()
        if left is None:
            self._engine.outage.answered(sent)
        else:
            self._engine.outage.failed(error, sent, time.monotonic() + left)

    def _timeout(self) -> float | None:
        """Return the time-out of the next request in seconds, no longer than patience lasts; None: requests do not fail, so it is the usual one."""
        left = self.throttle.patience_left()
        return None if left is None else max(_SHORTEST_TIMEOUT, min(left, self._engine.timeout))

    def _too_large(self, batch: Sequence[BulkItem], size: int, limit: str) -> list[Sequence[BulkItem]]:
        """Return the halves of a batch that exceeds a size limit of the server; a single document is refused instead, and [] returned."""
        self.throttle.limit_size(size)
        if len(batch) > 1:
            return _halves(batch)
        reason = f"one document of {size:,} bytes is larger than the server, or a proxy before it, allows ({limit})"
        self._put(Outcome(refused=[(batch[0].id, reason)]))
        return []


def _halves(batch: Sequence[BulkItem]) -> list[Sequence[BulkItem]]:
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]] if middle else [batch]
