"""The queue of texts to encode: texts of all requests are grouped into batches, and requests take turns.

A free worker takes the texts that wait, so a single text is encoded at once and batches grow with the load. A batch has texts of one model and
kind, a few of each request in turn: a question does not wait until a thousand earlier documents are done. A long text counts as several, and
if there are several workers, one of them takes no text that fills a batch alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from termweave.errors import TermweaveError

#: Texts that may wait. With the shipped model and two cores they take some seconds.
MOST_WAITING = 4096
#: Characters by which a text counts as one more: about as many as a model reads, but term weights need the words of the rest, too.
_CHARACTERS = 2000
#: Texts that a worker takes at a time. With 16 a short text takes 1.4 to 1.7 ms of the processor, alone 1.9 ms; 64 gain nothing more.
BATCH = 16
#: Seconds in which a batch that has begun is finished before the process ends.
_FINISH = 5.0


class QueueFull(TermweaveError):
    """The queue takes no more texts: too many wait, or the server is about to end."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting:,} texts wait to be encoded." if waiting else "The model server ends.", "Try again later.")


@dataclass(eq=False)
class _Request:
    """The texts of one request, how many of them workers have taken, and the results so far."""

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
        """Total size of the texts that no worker has taken yet; a long text counts more than one."""
        return sum(self.sizes[self.taken :])

    def is_long(self) -> bool:
        """Whether the next text of the request is so long that it fills a batch alone."""
        return self.sizes[self.taken] >= BATCH


class EncodingQueue:
    """A queue whose worker threads encode texts.

    Args:
        workers: Number of worker threads.
        counted: Function that is called with the number of texts of each batch.
        ending: Function that tells whether the server is about to end; then only batches that have begun are finished.
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
        """Number of texts that wait in the queue."""
        return self._texts

    def submit(self, lane: Hashable, encode: Callable[[Sequence[str]], Sequence[Any]], texts: Sequence[str]) -> Future[list[Any]]:
        """Put texts into the queue and return the future of their results. Cancelling the future removes the texts that still wait.

        Args:
            lane: Key of texts that may share a batch, such as model, output and kind.
            encode: Function that encodes texts of this lane: one result for each, in order.
            texts: The texts to encode.

        Raises:
            QueueFull: The queue has no room for the texts, or the server is about to end.
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
        """Answer waiting requests with the error `QueueFull`, and wait until the threads have finished their batches."""
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
        """Encode a batch, texts at some places of some requests, and answer completed requests; False: the batch is empty."""
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
        """Wait for texts and take a batch of them: requests with places of their texts; empty: the queue is closed."""
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
        """Take a batch of texts of one lane from the waiting requests; the request that waits longest fills the batch first."""
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
        """The places of the next texts of a request that fit into a batch; a long text fits only into an empty batch, if a worker may take it now."""
        if request.is_long():
            return range(request.taken, request.taken + (first and self._long < self._most_long))
        stop = request.taken
        while stop < len(request.texts) and request.sizes[stop] <= room:
            room, stop = room - request.sizes[stop], stop + 1
        return range(request.taken, stop)


def _settle(answer: Future[list[Any]], results: list[Any] | None = None, error: Exception | None = None) -> None:
    """Give a future its results or its error; nothing happens if the future was cancelled or has failed before."""
    with suppress(InvalidStateError):
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(results or [])
