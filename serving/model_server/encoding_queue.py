"""The queue of texts to encode: texts of all requests become batches, and each request gets its turn.

A worker that is free takes what waits, so a text that comes alone is encoded at once and batches grow with the load. It takes texts of one
model and kind, a few of each request in turn: a question does not wait for the thousand documents that came before it. A long text counts
as many, and one worker, where there are several, takes none that fills a batch alone.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

#: Texts that may wait. With the shipped model and two cores they take some seconds.
MOST_WAITING = 4096
#: Characters by which a text counts as one more: about as many as a model reads, but term weights need the words of the rest, too.
_CHARACTERS = 2000
#: Texts that a worker takes at a time. With 16 a short text takes 1.4 to 1.7 ms of the processor, alone 1.9 ms; 64 gain nothing more.
BATCH = 16
#: Seconds in which a batch that has begun is finished before the process ends.
_FINISH = 5.0


class QueueFull(TermweaveError):
    """More texts wait than the queue takes, or the server is about to end."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting:,} texts wait." if waiting else "The server is about to end.", "Try again later.")


@dataclass(eq=False)
class _Request:
    """The texts of a request: which of them are taken, and the results so far."""

    lane: Hashable
    encode: Callable[[Sequence[str]], Sequence[Any]]
    texts: Sequence[str]
    results: list[Any]
    answer: Future[list[Any]] = field(default_factory=Future)
    taken: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.sizes = [1 + len(text) // _CHARACTERS for text in self.texts]

    @property
    def waiting(self) -> int:
        """Size of the texts that are not taken."""
        return sum(self.sizes[self.taken :])

    def is_long(self) -> bool:
        """Whether its next text fills a batch alone."""
        return self.sizes[self.taken] >= BATCH


class EncodingQueue:
    """Encode texts in worker threads.

    Args:
        workers: Number of threads.
        counted: Is called with the number of texts of each batch.
        ending: Whether the server is about to end: batches that have begun are finished, and no others are taken.
    """

    def __init__(self, workers: int, counted: Callable[[int], None], ending: Callable[[], bool]) -> None:
        self._counted, self._ending = counted, ending
        self._waiting: deque[_Request] = deque()
        self._changed = Condition()
        self._texts = self._size = 0
        self._long, self._most_long = 0, max(1, workers - 1)
        self._closed = False
        self._threads = [Thread(target=self._work, name=f"termweave-queue-{number}", daemon=True) for number in range(workers)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """Number of texts that wait."""
        return self._texts

    def submit(self, lane: Hashable, encode: Callable[[Sequence[str]], Sequence[Any]], texts: Sequence[str]) -> Future[list[Any]]:
        """Let texts be encoded. To cancel the future takes those that wait out of the queue.

        Args:
            lane: Texts of the same lane may share a batch: model, output and kind.
            encode: Encodes texts of the lane: one result each, in order.
            texts: The texts.

        Raises:
            QueueFull: There is no room for them.
        """
        request = _Request(lane, encode, texts, [None] * len(texts))
        with self._changed:
            # A request that is larger than the queue is taken when nothing waits: it could never come in otherwise. Small ones pass it.
            size = request.waiting
            full = self._texts + len(texts) > MOST_WAITING or (size > BATCH and self._size + size > MOST_WAITING)
            if self._closed or self._ending() or (self._texts and full):
                raise QueueFull(self._texts)
            self._waiting.append(request)
            self._texts += len(texts)
            self._size += size
            self._changed.notify()
        return request.answer

    def close(self) -> None:
        """Answer the texts that wait with an error, and end the threads when their batches are finished."""
        with self._changed:
            self._refuse_all()
        for thread in self._threads:
            thread.join(_FINISH)

    def _refuse_all(self) -> None:
        self._closed, self._texts, self._size = True, 0, 0
        while self._waiting:
            _settle(self._waiting.popleft().answer, error=QueueFull(0))
        self._changed.notify_all()

    def _work(self) -> None:
        while self._finish(self._take()):  # without a variable: a worker that waits keeps no model in memory
            pass

    def _finish(self, batch: list[tuple[_Request, range]]) -> bool:
        """Encode a batch and answer its requests; False for an empty one."""
        if not batch:
            return False
        try:
            self._encode(batch)
        finally:
            request, places = batch[0]
            if request.sizes[places.start] >= BATCH:
                with self._changed:
                    self._long -= 1
                    self._changed.notify()
        return True

    def _encode(self, batch: list[tuple[_Request, range]]) -> None:
        self._counted(sum(len(places) for _, places in batch))
        encode = batch[0][0].encode
        try:
            results = iter(encode([request.texts[place] for request, places in batch for place in places]))
        except Exception as error:  # noqa: BLE001 - belongs to the requests, which report it; the worker goes on
            for request, _ in batch:
                _settle(request.answer, error=error)
            return
        for request, places in batch:
            for place in places:
                request.results[place] = next(results)
            with self._changed:
                request.done += len(places)
            if request.done == len(request.texts):
                _settle(request.answer, request.results)

    def _take(self) -> list[tuple[_Request, range]]:
        """Wait for texts and take a batch; empty when the queue is closed."""
        with self._changed:
            batch: list[tuple[_Request, range]] = []
            while not batch and not self._closed:
                if self._ending():
                    self._refuse_all()
                elif not self._waiting or not (batch := self._gather()):
                    self._changed.wait()
            if self._waiting:
                self._changed.notify()
            return batch

    def _gather(self) -> list[tuple[_Request, range]]:
        """Take a batch of one lane: the request that waits longest gives most."""
        batch: list[tuple[_Request, range]] = []
        room, lane = BATCH, None
        for request in list(self._waiting):
            if request.answer.done():  # its client went away, or another batch of it failed
                self._waiting.remove(request)
                self._texts -= len(request.texts) - request.taken
                self._size -= request.waiting
            elif lane in {None, request.lane} and (places := self._places(request, room, first=not batch)):
                lane = request.lane
                room -= sum(request.sizes[place] for place in places)
                self._texts -= len(places)
                self._size -= sum(request.sizes[place] for place in places)
                self._long += request.is_long()
                request.taken = places.stop
                self._waiting.remove(request)
                if request.taken < len(request.texts):
                    self._waiting.append(request)  # behind the others
                batch.append((request, places))
        return batch

    def _places(self, request: _Request, room: int, *, first: bool) -> range:
        """The next texts of a request that a batch has room for; the first batch text has room whatever its size."""
        if request.is_long():
            return range(request.taken, request.taken + (first and self._long < self._most_long))
        stop = request.taken
        while stop < len(request.texts) and request.sizes[stop] <= room:
            room, stop = room - request.sizes[stop], stop + 1
        return range(request.taken, stop)


def _settle(answer: Future[list[Any]], results: list[Any] | None = None, error: Exception | None = None) -> None:
    """Give a future its result or its error, unless its client went away or another batch of it failed."""
    with suppress(InvalidStateError):
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(results or [])
