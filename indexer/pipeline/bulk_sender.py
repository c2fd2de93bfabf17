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
"""

from __future__ import annotations

import queue
import re
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.catalog.lineage import exists
from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.server_errors import block_hint, known_status
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.generations.index_setup import writer
from termweave.indexer.pipeline import throttle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
_LATER_HINT = "See its log, and lower --workers. Run the command again: it resumes."


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
        raise EngineError("The response to _bulk is not one of OpenSearch.", "Look for a proxy between that changes responses.")
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
            hint = "Run 'termweave index' again: it begins anew."
            outcome.fatal = EngineError(f"{index} was deleted while it was being built.", hint)
        else:
            outcome.fatal = EngineError(f"The engine takes no documents: {reason} (status {status}).", _hint(reason))
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
            f"The engine cannot write to {index}: {reason}.",
            "A shard is missing: GET /_cluster/allocation/explain says why. When it is back, run the command again: it resumes.",
        )
    return EngineError(f"The engine keeps rejecting documents: {reason}.", _hint(reason) if block_hint(reason) else _LATER_HINT)


def _hint(reason: str) -> str:
    return f"{block_hint(reason)} Run the command again when that is fixed: it resumes.".lstrip()


def reason_of(result: dict[str, Any]) -> str:
    """Return why the server did not carry out an action of `_bulk`, with the cause that it names."""
    error = result.get("error") or {}
    cause = error.get("caused_by") or {}
    return ": ".join(part for part in (error.get("reason"), cause.get("reason")) if part) or f"status {result['status']}"


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

    def __init__(
        self, engine: Engine, index: str, lease: Lease, stop: threading.Event, *, workers: int = 2, patience: float = 120.0
    ) -> None:
        self.throttle = throttle.Throttle(patience, stop)
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
            return _halves(batch) if error.status == HTTPStatus.TOO_MANY_REQUESTS or len(body) > throttle.SMALLEST else [batch]
        except EngineUnreachable as error:
            hint = f"{error.hint} When it is back, run the command again: it resumes.".lstrip()
            # A request that our patience cut short says nothing new of the server: the error before it does.
            earlier = self.throttle.last_error if timeout is not None and timeout < self._engine.timeout else None
            self._failed(ticket, earlier or EngineUnreachable(error.message, hint), began)
            return _halves(batch) if len(body) > throttle.SMALLEST else [batch]
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
