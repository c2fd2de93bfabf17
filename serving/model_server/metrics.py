"""Counts and times of the model server in the text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16)
#: Name of a metric -> its type, and what it says.
_METRICS = {
    "termweave_requests_total": ("counter", "Requests that were answered."),
    "termweave_texts_total": ("counter", "Texts that were encoded."),
    "termweave_request_seconds": ("histogram", "Seconds until the answer."),
    "termweave_queue_texts": ("gauge", "Texts that wait."),
    "termweave_batch_texts": ("histogram", "Texts that were encoded together."),
}


class Metrics:
    """What `/metrics` shows. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: defaultdict[str, float] = defaultdict(float)  # a name with its labels, as the text has them -> a value

    def answered(self, endpoint: str, status: int, texts: int, seconds: float) -> None:
        """Count a request to an endpoint ("embeddings", "sparse", "query"), the texts of a successful one, and how long it took."""
        label = f'endpoint="{endpoint}"'
        with self._lock:
            self._values[f'termweave_requests_total{{{label},status="{status}"}}'] += 1
            self._values[f"termweave_texts_total{{{label}}}"] += texts
            self._observe("termweave_request_seconds", label, seconds, _SECONDS)

    def batch(self, texts: int) -> None:
        """Count a batch of texts."""
        with self._lock:
            self._observe("termweave_batch_texts", "", texts, _SIZES)

    def _observe(self, name: str, label: str, number: float, bounds: Sequence[float]) -> None:
        """Count a number in a histogram: in the bucket of each bound that it does not exceed, and in their sum."""
        for bound in (*bounds, float("inf")):
            text = "+Inf" if bound == float("inf") else bound
            self._values[f'{name}_bucket{{{label}{"," if label else ""}le="{text}"}}'] += number <= bound
        labels = f"{{{label}}}" if label else ""
        self._values[f"{name}_sum{labels}"] += number
        self._values[f"{name}_count{labels}"] += 1

    def text(self, waiting: int) -> str:
        """All metrics; `waiting`: texts in the queue."""
        with self._lock:
            values = {**self._values, "termweave_queue_texts": waiting}
        lines: list[str] = []
        for name, (kind, about) in _METRICS.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{line} {value:.15g}" for line, value in values.items() if line.startswith(name)]
        return "\n".join([*lines, ""])
