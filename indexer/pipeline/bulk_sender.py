"""Sending: `_bulk` requests by a few threads, retried by class of error and by item.

The promise is idempotent sending, then verification: a document's `_id` never changes, so a batch that may or may not have been
applied is simply sent again.

=======================  ========================================================================================
429, 500, 502, 503, 504  and lost connections: again after a common, growing, jittered pause; only the items concerned
413                      the batch is halved, down to the one document, which is refused; so with a 429 that says that the
                         request alone is more than the server's indexing pressure limit, whatever else it has to do
400 of an item           refused: it goes to the dead letters with the engine's reason
409                      a version conflict: the document is there, so it is settled
anything else            ends the sending; the ledger knows what is missing, the same command goes on from there
=======================  ========================================================================================
"""

from __future__ import annotations

import queue
import re
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.failures import block_hint
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer import pace
from termweave.indexer.generations import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.engine import Engine

#: Overload and passing trouble: the same item may go through later.
_LATER = frozenset({429, 500, 502, 503, 504})
#: What is wrong with the document itself.
_OWN_FAULT = frozenset({400, 413})
#: The engine waits so long for a shard that is away before it answers 503; by default 60 s, as long as we wait for the engine.
_SHARD_PATIENCE = "20s"
#: In the reason of a 429 (OpenSearch 3.6.0): bytes of the request, and of all requests that are taken at a time.
_PRESSURE = re.compile(r"operation_bytes=(\d+), max_\w+_bytes=(\d+)")
_LATER_HINT = "See its log, and lower --workers. Run the command again: it resumes."
#: Only what is read of an answer: it is a twentieth of the whole.
_ANSWER = "items.*.status,items.*.error.reason,items.*.error.caused_by.reason"
#: Batches that may wait for a connection: more would be memory and no speed.
_WAITING = 2
#: Seconds between looks at whether to stop.
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class Item:
    """One document on its way.

    Attributes:
        id: Source id.
        line: Where it stands in the source.
        lines: Action and body as NDJSON, each with its newline.
        digest: Digest of its encoding, for the ledger.
    """

    id: str
    line: int | None
    lines: bytes
    digest: int


class Sender:
    """Sends batches; `submit` blocks while all workers are busy and the queue is full.

    Args:
        engine: Where to.
        index: The concrete index.
        acknowledged: Called with (id, digest) of documents that the engine has; from one thread, never twice at a time.
        refused: Called with (id, reason) of documents that it will never take; likewise.
        workers: Connections used at once.
        patience: Seconds to keep trying while the engine is overloaded or away and nothing goes through.
        waiting: Called now and then by the thread that waits in `submit` or `close`.
    """

    def __init__(
        self,
        engine: Engine,
        index: str,
        *,
        acknowledged: Callable[[list[tuple[str, int]]], None],
        refused: Callable[[list[tuple[str, str]]], None],
        workers: int = 2,
        patience: float = 120.0,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._path = f"/{writer(index)}/_bulk?require_alias=true&timeout={_SHARD_PATIENCE}&filter_path={_ANSWER}"
        self._index = index
        self._acknowledged = acknowledged
        self._refused = refused
        self._waiting = waiting
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._pace = pace.Pace(patience, self._stop)
        self._queue: queue.Queue[Sequence[Item] | None] = queue.Queue(maxsize=min(workers, _WAITING))
        self._settled: queue.Queue[tuple[list[tuple[str, int]], list[tuple[str, str]]] | None] = queue.Queue(2 * workers)
        # Daemons: a server that does not answer must not hold the process when it is to end.
        self._threads = [
            threading.Thread(target=self._work, name=f"termweave-send-{number}", daemon=True) for number in range(workers)
        ]
        self._acknowledger = threading.Thread(target=self._acknowledge, name="termweave-acknowledge", daemon=True)
        for thread in (*self._threads, self._acknowledger):
            thread.start()

    @property
    def batch_bytes(self) -> int:
        """How large the next batch should be."""
        return self._pace.size

    def submit(self, batch: Sequence[Item]) -> None:
        """Hand over a batch.

        Raises:
            EngineError: An earlier batch could not be sent.
        """
        while not self._stop.is_set():
            try:
                self._queue.put(batch, timeout=_TICK)
            except queue.Full:
                self._waiting()
                continue
            return
        self._raise()

    def close(self) -> None:
        """Wait until everything is sent and acknowledged.

        Raises:
            EngineError: A batch could not be sent; the ledger says which documents are missing.
        """
        for _ in self._threads:
            while any(thread.is_alive() for thread in self._threads):
                try:
                    self._queue.put(None, timeout=_TICK)
                except queue.Full:
                    self._waiting()
                    continue
                break
        self._join()
        self._raise()

    def abandon(self) -> None:
        """Stop after the requests now under way; what they bring is acknowledged. Nothing is sent again."""
        self._stop.set()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK)
                self._waiting()
        self._settled.put(None)
        self._acknowledger.join()
        self._waiting()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                batch = self._queue.get(timeout=_TICK)
            except queue.Empty:
                continue
            if batch is None:
                return
            try:
                self._send(batch)
            except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
                self._fail(error)

    def _acknowledge(self) -> None:
        """Write down what is settled: all that has come meanwhile in one transaction, while the workers send on."""
        last = False
        while not last:
            waiting = [self._settled.get()]
            while not self._settled.empty():
                waiting.append(self._settled.get())
            last = None in waiting
            found = [each for each in waiting if each is not None]
            settled = [pair for pairs, _ in found for pair in pairs]
            refused = [pair for _, pairs in found for pair in pairs]
            try:
                if settled:
                    self._acknowledged(settled)
                if refused:
                    self._refused(refused)
            except BaseException as error:  # noqa: BLE001 - likewise
                self._fail(error)

    def _send(self, batch: Sequence[Item]) -> None:
        """Send until every item is acknowledged or refused, or all is to stop."""
        parts = [batch]
        while parts and not self._stop.is_set():
            parts += self._once(parts.pop())

    def _once(self, batch: Sequence[Item]) -> list[Sequence[Item]]:
        """One request; returns what is still to be sent, in parts."""
        ticket = self._pace.wait()
        if self._stop.is_set():
            return []
        body = b"".join(item.lines for item in batch)
        began = time.monotonic()
        try:
            answer = self._engine.request("POST", self._path, body=body, retry=False)
        except EngineResponseError as error:
            if limit := _limit_beyond(error):
                return self._too_large(batch, len(body), limit)
            if error.status not in _LATER:
                raise
            error.hint = error.hint or _LATER_HINT
            self._pace.trouble(ticket, error)
            # An overloaded server may take no request of this size ever: its limit is in bytes.
            return _halves(batch) if error.status == HTTPStatus.TOO_MANY_REQUESTS or len(body) > pace.SMALLEST else [batch]
        except EngineUnreachable as error:
            hint = f"{error.hint} When it is back, run the command again: it resumes.".lstrip()
            self._pace.trouble(ticket, EngineUnreachable(error.message, hint))
            return _halves(batch) if len(body) > pace.SMALLEST else [batch]
        left, trouble = self._settle(batch, answer)
        if trouble is None:
            self._pace.went(ticket, len(body), time.monotonic() - began)
            return []
        self._pace.trouble(ticket, trouble, progress=len(left) < len(batch))
        return [left]

    def _settle(self, batch: Sequence[Item], answer: Any) -> tuple[list[Item], EngineError | None]:
        """Report what is settled; return the items to send again, and why."""
        settled: list[tuple[str, int]] = []
        refused: list[tuple[str, str]] = []
        again: list[Item] = []
        trouble: EngineError | None = None
        failure: EngineError | None = None
        if len(answer.get("items", ())) != len(batch):
            raise EngineError(
                "The answer to _bulk is not one of an OpenSearch.", "Is there a proxy between that changes answers?"
            )
        for item, outcome in zip(batch, answer["items"], strict=True):
            (result,) = outcome.values()
            status = result["status"]
            if status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.CONFLICT:
                settled.append((item.id, item.digest))
            elif status in _LATER:
                again.append(item)
                trouble = self._trouble(status, _reason(result))
            elif status in _OWN_FAULT:
                refused.append((item.id, _reason(result)))
            elif status == HTTPStatus.NOT_FOUND:
                failure = EngineError(
                    f"{self._index} was deleted while it was being built.", "Run 'termweave index' again: it begins anew."
                )
            else:
                failure = EngineError(
                    f"The engine takes no documents: {_reason(result)} (status {status}).", _hint(_reason(result))
                )
        if settled or refused:
            self._settled.put((settled, refused))
        if failure is not None:
            raise failure
        return again, trouble

    def _trouble(self, status: int, reason: str) -> EngineError:
        """What to say of an item that is sent again, should patience end."""
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return EngineError(
                f"The engine cannot write to {self._index}: {reason}.",
                "A shard of it is nowhere: GET /_cluster/allocation/explain says why. When it is back, run the command again: it resumes.",
            )
        return EngineError(
            f"The engine keeps rejecting documents: {reason}.",
            _hint(reason) if block_hint(reason) else _LATER_HINT,
        )

    def _too_large(self, batch: Sequence[Item], size: int, limit: str) -> list[Sequence[Item]]:
        self._pace.too_large(size)
        if len(batch) > 1:
            return _halves(batch)
        reason = f"one document of {size:,} bytes is larger than the server's {limit}"
        self._settled.put(([], [(batch[0].id, reason)]))
        return []


def _limit_beyond(error: EngineResponseError) -> str:
    """The limit that a request is beyond by its own size, not for what the server has to do besides; empty where it is none."""
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "http.max_content_length"
    found = _PRESSURE.search(error.reason) if error.status == HTTPStatus.TOO_MANY_REQUESTS else None
    return "indexing_pressure.memory.limit" if found and int(found[1]) > int(found[2]) else ""


def _halves(batch: Sequence[Item]) -> list[Sequence[Item]]:
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]] if middle else [batch]


def _hint(reason: str) -> str:
    return f"{block_hint(reason)} Run the command again when that is mended: it resumes.".lstrip()


def _reason(result: dict[str, Any]) -> str:
    error = result.get("error") or {}
    cause = error.get("caused_by") or {}
    return ": ".join(part for part in (error.get("reason"), cause.get("reason")) if part) or f"status {result['status']}"
