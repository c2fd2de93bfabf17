"""Measure the time that work needs on a machine that does other work at the same time."""

import time
from collections.abc import Callable


def stopwatch() -> Callable[[], float]:
    """Begin to measure. Return a function that gives the seconds since then: by the wall clock, or this process's processor time if less."""
    wall, processor = time.monotonic(), time.process_time()
    return lambda: min(time.monotonic() - wall, time.process_time() - processor)
