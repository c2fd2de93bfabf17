"""The bulk sender: a few threads send `_bulk` requests, and repeat what the server did not take.

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
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from termweave.engine import EngineResponseError
from termweave.errors import EngineUnreachable
from termweave.indexer.generations.index_setup import writer
from termweave.indexer.pipeline import throttle
from termweave.indexer.pipeline.bulk_responses import LATER, LATER_HINT, BulkItem, exceeded_limit, outcome_of
from termweave.search.catalog.lineage import exists

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease

_PARAMETERS = {
    "require_alias": True,
    # How long the server waits for a missing shard before it answers 503. Its default, 60 s, is as long as we wait for the response.
    "timeout": "20s",
    # The parts of a response that are read: a twentieth of it.
    "filter_path": "items.*.status,items.*.error.reason,items.*.error.caused_by.reason",
}
#: Batches that may wait for a connection; more would cost memory and gain no speed.
_WAITING = 2
#: Seconds between checks whether to stop.
_TICK = 0.2
#: The shortest time-out of a repeated request, in seconds, however little patience is left.
_SHORTEST_TIMEOUT = 1.0


class BulkSender:
    """Sends batches in threads of its own. `submit` blocks while all workers are busy and the queue is full.

    Args:
        engine: The server.
        index: The concrete index.
        lease: The lease under which it is written: it is checked before each request.
        acknowledged: Called with (id, digest) of documents that the server has; always from one thread.
        refused: Called with (id, reason) of documents that the server will never take; likewise.
        workers: Connections that are used at the same time.
        patience: Seconds to keep trying while the server is overloaded or away and nothing succeeds.
        waiting: Called now and then by the thread that waits in `submit` or `close`.
    """

    def __init__(
        self,
        engine: Engine,
        index: str,
        lease: Lease,
        *,
        acknowledged: Callable[[list[tuple[str, int]]], None],
        refused: Callable[[list[tuple[str, str]]], None],
        workers: int = 2,
        patience: float = 120.0,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._lease = lease
        self._path = f"/{writer(index, lease.number)}/_bulk"
        self._index = index
        self._on_acknowledged = acknowledged
        self._on_refused = refused
        self._on_wait = waiting
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._throttle = throttle.Throttle(patience, self._stop)
        self._batches: queue.Queue[Sequence[BulkItem] | None] = queue.Queue(maxsize=min(workers, _WAITING))
        self._results: queue.Queue[tuple[list[tuple[str, int]], list[tuple[str, str]]] | None] = queue.Queue(2 * workers)
        # Daemon threads: a server that does not answer must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._work, name=f"termweave-send-{number}", daemon=True) for number in range(workers)
        ]
        self._reporter = threading.Thread(target=self._report, name="termweave-acknowledge", daemon=True)
        for thread in (*self._threads, self._reporter):
            thread.start()

    @property
    def batch_bytes(self) -> int:
        """Bytes that the next batch should have."""
        return self._throttle.size

    def submit(self, batch: Sequence[BulkItem]) -> None:
        """Hand over a batch.

        Raises:
            EngineError: An earlier batch could not be sent.
        """
        while not self._stop.is_set():
            try:
                self._batches.put(batch, timeout=_TICK)
            except queue.Full:
                self._on_wait()
                continue
            return
        self._raise_failure()

    def close(self) -> None:
        """Wait until everything is sent and acknowledged.

        Raises:
            EngineError: A batch could not be sent; the ledger lists which documents are missing.
        """
        for _ in self._threads:
            while any(thread.is_alive() for thread in self._threads):
                try:
                    self._batches.put(None, timeout=_TICK)
                except queue.Full:
                    self._on_wait()
                    continue
                break
        self._join()
        self._raise_failure()

    @property
    def waited(self) -> float:
        """Seconds in which the server took nothing."""
        return self._throttle.waited

    def abandon(self) -> None:
        """Stop when the open requests are answered; their documents are acknowledged, and nothing is sent again."""
        self._stop.set()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
                self._on_wait()
        self._results.put(None)
        self._reporter.join()
        self._on_wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        """Stop all threads; the thread that waits in `submit` or `close` raises the error."""
        self._failure = self._failure or error
        self._stop.set()

    def _work(self) -> None:
        """Send batches until there are no more: the body of each worker."""
        while not self._stop.is_set():
            try:
                batch = self._batches.get(timeout=_TICK)
            except queue.Empty:
                continue
            if batch is None:
                return
            try:
                self._send(batch)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                self._fail(error)

    def _report(self) -> None:
        """Report results while the workers send; everything that waits is written in one transaction of the ledger."""
        last = False
        while not last:
            results = [self._results.get()]
            while not self._results.empty():
                results.append(self._results.get())
            last = None in results
            acknowledged = [pair for result in results if result is not None for pair in result[0]]
            refused = [pair for result in results if result is not None for pair in result[1]]
            try:
                if acknowledged:
                    self._on_acknowledged(acknowledged)
                if refused:
                    self._on_refused(refused)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                self._fail(error)

    def _send(self, batch: Sequence[BulkItem]) -> None:
        """Send a batch until every document is acknowledged or refused, or sending stops."""
        parts = [batch]
        while parts and not self._stop.is_set():
            parts += self._request(parts.pop())

    def _request(self, batch: Sequence[BulkItem]) -> list[Sequence[BulkItem]]:
        """Send one request; returns the documents that must still be sent, in parts."""
        ticket = self._throttle.wait()
        if self._stop.is_set():
            return []
        self._lease.check()
        body = b"".join(item.lines for item in batch)
        began, timeout = time.monotonic(), self._timeout()
        try:
            answer = self._engine.request("POST", self._path, params=_PARAMETERS, body=body, timeout=timeout, retry=False)
        except EngineResponseError as error:
            if limit := exceeded_limit(error):
                return self._too_large(batch, len(body), limit)
            if error.status not in LATER:
                raise
            error.hint = error.hint or LATER_HINT
            self._throttle.failed(ticket, error)
            # A server may be too loaded for any request of this size: its limit is in bytes.
            return _halves(batch) if error.status == HTTPStatus.TOO_MANY_REQUESTS or len(body) > throttle.SMALLEST else [batch]
        except EngineUnreachable as error:
            hint = f"{error.hint} When it is back, run the command again: it resumes.".lstrip()
            # A request that our patience cut short says nothing new of the server: the error before it does.
            earlier = self._throttle.last_error if timeout is not None and timeout < self._engine.timeout else None
            self._throttle.failed(ticket, earlier or EngineUnreachable(error.message, hint))
            return _halves(batch) if len(body) > throttle.SMALLEST else [batch]
        outcome = outcome_of(batch, answer, self._index)
        if outcome.acknowledged or outcome.refused:
            self._results.put((outcome.acknowledged, outcome.refused))
        if outcome.fatal is not None:
            raise self._lease.lost() if outcome.closed and exists(self._engine, self._index) else outcome.fatal
        if outcome.error is None:
            self._throttle.succeeded(ticket, len(body), time.monotonic() - began)
            return []
        self._throttle.failed(ticket, outcome.error, progress=len(outcome.again) < len(batch))
        return [outcome.again]

    def _timeout(self) -> float | None:
        """The time-out of a request while requests fail: no longer than patience lasts; None: as long as usual."""
        left = self._throttle.patience_left()
        return None if left is None else max(_SHORTEST_TIMEOUT, min(left, self._engine.timeout))

    def _too_large(self, batch: Sequence[BulkItem], size: int, limit: str) -> list[Sequence[BulkItem]]:
        """Halve a batch that exceeds a limit of the server; a single document is refused."""
        self._throttle.limit_size(size)
        if len(batch) > 1:
            return _halves(batch)
        reason = f"one document of {size:,} bytes is larger than the server, or a proxy before it, allows ({limit})"
        self._results.put(([], [(batch[0].id, reason)]))
        return []


def _halves(batch: Sequence[BulkItem]) -> list[Sequence[BulkItem]]:
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]] if middle else [batch]
