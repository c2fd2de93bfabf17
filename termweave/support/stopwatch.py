"""Time that work needs, on a machine that does other work beside it."""

import time
from collections.abc import Callable


def stopwatch() -> Callable[[], float]:
    """Begin to measure; what is returned tells the seconds: of the wall clock, or of processor time where others had the processors."""
    wall, processor = time.monotonic(), time.process_time()
    return lambda: min(time.monotonic() - wall, time.process_time() - processor)
