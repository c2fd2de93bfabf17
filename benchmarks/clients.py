"""Several clients of a server or of the library at once, and queries that are encoded before time is taken."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.records import Encoding
    from termweave.search import Index


def calls_a_second(clients: Sequence[Callable[[int], object]], seconds: float) -> float:
    """Calls a second of all clients together, each in a thread of its own; a client is given the number of the calls that it made before."""
    done, began = [0] * len(clients), time.perf_counter()

    def work(number: int) -> None:
        while time.perf_counter() - began < seconds:
            clients[number](done[number])
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def encode_beforehand(index: Index, queries: Sequence[str]) -> dict[str, Encoding]:
    """Encode queries now; searches of this process for them run no model from now on, until this is called for another index."""
    from termweave.search import single_query

    mock.patch.stopall()  # or the table of another index, with other statistics, would answer here
    known = dict(zip(queries, index.encode(queries), strict=True))
    mock.patch.object(
        single_query, "encode", lambda _, wanted: [known[each] if isinstance(each, str) else each for each in wanted]
    ).start()
    return known
