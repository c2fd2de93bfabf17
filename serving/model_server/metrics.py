"""Counts and times of the model server in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16)


class Histogram:
    """Numbers counted by their upper bounds.

    Args:
        bounds: The bounds, ascending; numbers above the last one are counted, too.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, number: float) -> None:
        """Count a number."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self._sum += number

    def lines(self, name: str, label: str = "") -> list[str]:
        """The lines of the text format; `label` is ``name="value"``."""
        lines, total = [], 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{label}{"," if label else ""}le="{bound}"}} {total}')
        labels = f"{{{label}}}" if label else ""
        return [*lines, f"{name}_sum{labels} {self._sum:.6f}", f"{name}_count{labels} {total}"]


class Metrics:
    """What `/metrics` shows. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._texts: Counter[str] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(_SIZES)

    def answered(self, endpoint: str, status: int, texts: int, seconds: float) -> None:
        """Count a request to an endpoint ("embeddings", "sparse", "query"), the texts of a successful one, and how long it took."""
        with self._lock:
            self._requests[endpoint, status] += 1
            self._texts[endpoint] += texts
            self._seconds.setdefault(endpoint, Histogram(_SECONDS)).add(seconds)

    def batch(self, texts: int) -> None:
        """Count a batch of texts."""
        with self._lock:
            self._batches.add(texts)

    def text(self, waiting: int) -> str:
        """All metrics; `waiting`: texts in the queue."""
        with self._lock:
            requests = [
                f'termweave_requests_total{{endpoint="{name}",status="{status}"}} {count}'
                for (name, status), count in sorted(self._requests.items())
            ]
            texts = [f'termweave_texts_total{{endpoint="{name}"}} {count}' for name, count in sorted(self._texts.items())]
            seconds = [
                line
                for name, histogram in sorted(self._seconds.items())
                for line in histogram.lines("termweave_request_seconds", f'endpoint="{name}"')
            ]
            batches = self._batches.lines("termweave_batch_texts")
        parts = (
            ("termweave_requests_total", "counter", "Requests that were answered.", requests),
            ("termweave_texts_total", "counter", "Texts that were encoded.", texts),
            ("termweave_request_seconds", "histogram", "Seconds until the answer.", seconds),
            ("termweave_queue_texts", "gauge", "Texts that wait.", [f"termweave_queue_texts {waiting}"]),
            ("termweave_batch_texts", "histogram", "Texts that were encoded together.", batches),
        )
        return "".join(
            "\n".join((f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines, "")) for name, kind, about, lines in parts
        )
