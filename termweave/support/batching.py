"""Split sequences into parts, and run iterators ahead in background threads.

`itertools.batched` needs Python 3.12, and turns strings and arrays into tuples.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeVar, cast

T = TypeVar("T")
#: Seconds between checks whether to stop.
_TICK = 0.2


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split a sequence into slices of `size` items; the last one may be shorter. An empty sequence has no slices.

    Example:
        >>> list(in_parts("abcde", 2))
        ['ab', 'cd', 'e']
    """
    return (items[start : start + size] for start in range(0, len(items), size))


def ahead(sources: Sequence[Iterator[T]], name: str, stop: threading.Event, depth: int = 1) -> Iterator[T]:
    """Iterate over the items of several iterators, each of which runs in its own background thread and prefetches at most `depth` items.

    Args:
        sources: The iterators; each is used only by its own background thread.
        name: Name of the threads.
        stop: Event that ends the threads and this iterator early.
        depth: Largest number of prefetched items.

    Raises:
        BaseException: An exception of a source, raised after the items before it.
    """
    prefetched: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=depth)
    for items in sources:
        threading.Thread(target=_prefetch, args=(items, prefetched, stop), name=f"termweave-{name}", daemon=True).start()
    running = len(sources)
    while running and not stop.is_set():
        try:
            item, end = prefetched.get(timeout=_TICK)
        except queue.Empty:
            continue
        if end is None:
            yield cast("T", item)
        elif isinstance(end, StopIteration):
            running -= 1
        else:
            raise end


def _prefetch(items: Iterator[T], prefetched: queue.Queue[tuple[T | None, BaseException | None]], stop: threading.Event) -> None:
    """Put the items of an iterator into a queue, followed by the exception with which the iterator ends."""
    end: BaseException | None = None
    while end is None and not stop.is_set():
        item = None
        try:
            item = next(items)
        except BaseException as error:  # noqa: BLE001 - the consuming thread raises it
            end = error
        waiting = True
        while waiting and not stop.is_set():
            with suppress(queue.Full):
                prefetched.put((item, end), timeout=_TICK)
                waiting = False
