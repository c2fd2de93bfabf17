"""Sending: `_bulk` requests by a few threads, retried by class of error and by item.

The promise is idempotent sending, then verification: a document's `_id` never changes, so a batch that may or may not have been
applied is simply sent again.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.errors import EngineError, EngineUnreachable
from termweave.indexer.generations import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.engine import Engine

#: Overload and passing trouble: the same item may go through later.
_LATER = frozenset({429, 500, 502, 503, 504})
#: What is wrong with the document itself.
_OWN_FAULT = frozenset({400, 413})
_TOO_LARGE = 413
_CONFLICT = 409
_NOT_FOUND = 404
_FIRST_ERROR = 300
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 20.0
#: Seconds that batches under way get when the rest is abandoned.
_GRACE = 3.0


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
        acknowledged: Called with (id, digest) of documents that the engine has; from any thread.
        refused: Called with (id, reason) of documents that it will never take; from any thread.
        workers: Connections used at once.
        patience: Seconds to keep trying while the engine is overloaded or away.
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
    ) -> None:
        self._engine = engine
        self._path = f"/{writer(index)}/_bulk"
        self._index = index
        self._acknowledged = acknowledged
        self._refused = refused
        self._patience = patience
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._queue: queue.Queue[Sequence[Item] | None] = queue.Queue(maxsize=workers)
        self._threads = [
            threading.Thread(target=self._work, name=f"termweave-send-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, batch: Sequence[Item]) -> None:
        """Hand over a batch.

        Raises:
            EngineError: An earlier batch could not be sent.
        """
        while not self._stop.is_set():
            try:
                self._queue.put(batch, timeout=0.2)
            except queue.Full:
                continue
            return
        self._raise()

    def close(self) -> None:
        """Wait until everything is sent.

        Raises:
            EngineError: A batch could not be sent; the ledger says which documents are missing.
        """
        for _ in self._threads:
            while any(thread.is_alive() for thread in self._threads):
                try:
                    self._queue.put(None, timeout=0.2)
                except queue.Full:
                    continue
                break
        for thread in self._threads:
            thread.join()
        self._raise()

    def abandon(self) -> None:
        """Stop after the batches now under way."""
        self._stop.set()
        until = time.monotonic() + _GRACE
        for thread in self._threads:  # daemons: a server that does not answer must not hold a Ctrl-C; sending is idempotent
            thread.join(max(0.0, until - time.monotonic()))

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                batch = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            if batch is None:
                return
            try:
                self._send(batch)
            except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
                self._failure = self._failure or error
                self._stop.set()

    def _send(self, batch: Sequence[Item]) -> None:
        """Send until every item is acknowledged or refused."""
        deadline = time.monotonic() + self._patience
        attempt = 0
        while batch:
            try:
                answer = self._engine.request(
                    "POST", self._path, params={"require_alias": True}, body=b"".join(item.lines for item in batch), retry=False
                )
            except EngineResponseError as error:
                if error.status == _TOO_LARGE:
                    self._split(batch)
                    return
                if error.status not in _LATER:
                    raise
                trouble: EngineError = error
            except EngineUnreachable as error:
                trouble = error
            else:
                left, trouble = self._settle(batch, answer)
                if len(left) < len(batch):
                    deadline = time.monotonic() + self._patience  # it goes on, if slowly
                batch = left
            if batch:
                self._pause(attempt, deadline, trouble)
                attempt += 1

    def _settle(self, batch: Sequence[Item], answer: dict[str, Any]) -> tuple[list[Item], EngineError]:
        """Report what is settled; return the items to send again, and why."""
        settled: list[tuple[str, int]] = []
        refused: list[tuple[str, str]] = []
        again: list[Item] = []
        trouble = EngineError("The engine is overloaded.")
        if not isinstance(answer, dict) or len(answer.get("items", ())) != len(batch):
            raise EngineError(
                "The answer to _bulk is not one of an OpenSearch.", "Is there a proxy between that changes answers?"
            )
        for item, outcome in zip(batch, answer["items"], strict=True):
            (result,) = outcome.values()
            status = result["status"]
            if status < _FIRST_ERROR or status == _CONFLICT:
                settled.append((item.id, item.digest))
            elif status == _NOT_FOUND:
                raise EngineError(
                    f"{self._index} was deleted while it was being built.", "Run 'termweave index' again: it begins anew."
                )
            elif status in _LATER:
                again.append(item)
                trouble = EngineError(
                    f"The engine keeps rejecting documents: {_reason(result)}.",
                    "See 'termweave node logs'; lower --workers, or free disk space.",
                )
            elif status in _OWN_FAULT:
                refused.append((item.id, _reason(result)))
            else:
                raise EngineError(f"The engine takes no documents: {_reason(result)} (status {status}).", _hint(result))
        if settled:
            self._acknowledged(settled)
        if refused:
            self._refused(refused)
        return again, trouble

    def _split(self, batch: Sequence[Item]) -> None:
        if len(batch) == 1:
            self._refused(
                [
                    (
                        batch[0].id,
                        f"one document of {len(batch[0].lines):,} bytes is larger than the server's http.max_content_length",
                    )
                ]
            )
            return
        middle = len(batch) // 2
        self._send(batch[:middle])
        self._send(batch[middle:])

    def _pause(self, attempt: int, deadline: float, trouble: EngineError) -> None:
        """Wait with jitter, longer each time; give up at the deadline."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
        pause = random.uniform(longest / 2, longest)  # noqa: S311 - jitter, not a secret
        if time.monotonic() + pause > deadline or self._stop.wait(pause):
            raise trouble


def _hint(result: dict[str, Any]) -> str:
    if "read-only" in _reason(result) or "blocked" in _reason(result):
        return "The index is blocked, usually because a disk is full: free some space and run the command again, it resumes."
    return "Run the command again when that is mended: it resumes."


def _reason(result: dict[str, Any]) -> str:
    error = result.get("error") or {}
    cause = error.get("caused_by") or {}
    return ": ".join(part for part in (error.get("reason"), cause.get("reason")) if part) or f"status {result['status']}"
