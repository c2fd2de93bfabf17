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

from termweave.catalog.lineage import exists
from termweave.engine import EngineResponseError
from termweave.errors import EngineUnreachable
from termweave.indexer.generations.index_setup import writer
from termweave.indexer.pipeline import throttle
from termweave.indexer.pipeline.bulk_responses import LATER, LATER_HINT, BulkItem, Outcome, exceeded_limit, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.engine import Engine
    from termweave.errors import EngineError
    from termweave.indexer.ledger.build_lock import Lease

_PARAMETERS = {
    "require_alias": True,
    "pipeline": "_none",
    # How long the server waits for a missing shard before it answers 503. Its default, 60 s, is as long as we wait for the response.
    "timeout": "20s",
    # The parts of a response that are read: a twentieth of it.
    "filter_path": "items.*.status,items.*.error.reason,items.*.error.caused_by.reason",
}
#: Seconds after which `BulkSender.outcomes` yields an empty outcome if there was none.
_TICK = 0.2
#: The shortest time-out of a repeated request, in seconds, however little patience is left.
_SHORTEST_TIMEOUT = 1.0


class BulkSender:
    """Sends batches in threads of its own.

    Args:
        engine: The server.
        index: The concrete index.
        lease: The lease under which it is written.
        stop: Ends the sending when the open requests are answered. It is set by the caller, or after a fatal outcome.
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
        """Send all batches, which the workers take as they become free; yields as `outcomes`."""
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
        """Send batches until there are no more: the body of each worker."""
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
        """Send one request; returns the documents that must still be sent, in parts."""
        ticket = self.throttle.wait()
        if self._stop.is_set():
            return []
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
            self._failed(ticket, error, began)
            # A server may be too loaded for any request of this size: its limit is in bytes.
            return _halves(batch) if error.status == HTTPStatus.TOO_MANY_REQUESTS or len(body) > throttle.SMALLEST else [batch]
        except EngineUnreachable as error:
            hint = f"{error.hint} When it is back, run the command again: it resumes.".lstrip()
            # A request that our patience cut short says nothing new of the server: the error before it does.
            earlier = self.throttle.last_error if timeout is not None and timeout < self._engine.timeout else None
            self._failed(ticket, earlier or EngineUnreachable(error.message, hint), began)
            return _halves(batch) if len(body) > throttle.SMALLEST else [batch]
        outcome = outcome_of(batch, answer, self._index)
        if outcome.closed and exists(self._engine, self._index):
            outcome.fatal = self._lease.lost()
        self._put(outcome)
        if outcome.error is not None and outcome.fatal is None:
            self._failed(ticket, outcome.error, began, progress=len(outcome.again) < len(batch))
            return [outcome.again]
        self.throttle.succeeded(ticket, len(body), time.monotonic() - began)
        self._engine.outage.answered(began)
        return []

    def _failed(self, ticket: int, error: EngineError, sent: float, *, progress: bool = False) -> None:
        """Pause all workers, and let the user hear of it if it lasts: for a shard that is away, the server answers with status 200."""
        self.throttle.failed(ticket, error, progress=progress)
        left = self.throttle.patience_left()
        if left is None:
            self._engine.outage.answered(sent)
        else:
            self._engine.outage.failed(error, sent, time.monotonic() + left)

    def _timeout(self) -> float | None:
        """The time-out of a request while requests fail: no longer than patience lasts; None: as long as usual."""
        left = self.throttle.patience_left()
        return None if left is None else max(_SHORTEST_TIMEOUT, min(left, self._engine.timeout))

    def _too_large(self, batch: Sequence[BulkItem], size: int, limit: str) -> list[Sequence[BulkItem]]:
        """Halve a batch that exceeds a limit of the server; a single document is refused."""
        self.throttle.limit_size(size)
        if len(batch) > 1:
            return _halves(batch)
        reason = f"one document of {size:,} bytes is larger than the server, or a proxy before it, allows ({limit})"
        self._put(Outcome(refused=[(batch[0].id, reason)]))
        return []


def _halves(batch: Sequence[BulkItem]) -> list[Sequence[BulkItem]]:
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]] if middle else [batch]
