"""Several clients of a server or of the library at once."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
