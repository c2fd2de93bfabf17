"""A worker: does one task of a job, in a process of its own on this host or on another one.

A process reads the task on standard input and answers on standard output (`main`).
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import orjson

from termweave.errors import TermweaveError
from termweave.indexer.shards import counting, shard_encoding
from termweave.indexer.shards.job import EncodingJob

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Task:
    """A part of a job.

    Attributes:
        job: The job, as JSON.
        what: Count shards, or encode one.
        shards: The shards.
    """

    job: bytes
    what: Literal["count", "encode"]
    shards: tuple[int, ...]

    def to_json(self) -> bytes:
        """The task as JSON."""
        return orjson.dumps({"job": orjson.loads(self.job), "what": self.what, "shards": self.shards})

    @classmethod
    def from_json(cls, content: bytes) -> Task:
        """Read `to_json`."""
        loaded = orjson.loads(content)
        return cls(orjson.dumps(loaded["job"]), loaded["what"], tuple(loaded["shards"]))

    def __str__(self) -> str:
        return f"{self.what} {', '.join(f'{shard:05}' for shard in self.shards)}"


def perform(task: Task, report: Callable[[int], None] = lambda _: None) -> int:
    """Do a task; shards that are done already are passed over.

    Returns:
        How many texts were encoded.

    Raises:
        TermweaveError: It cannot be done.
    """
    job = EncodingJob.from_json(task.job).open()
    if task.what == "count":
        if missing := set(counting.uncounted(job)).intersection(task.shards):
            counting.count(job, missing, report)
        return 0
    todo = set(shard_encoding.unencoded(job)).intersection(task.shards)
    return sum(shard_encoding.encode(job, shard, report) for shard in sorted(todo))


def main() -> int:
    """Do the task on standard input; print the number of texts, or the error, as JSON."""
    signal.signal(signal.SIGTERM, _end)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # a library that prints does not spoil the answer
    try:
        answer = {"texts": perform(Task.from_json(sys.stdin.buffer.read()))}
    except TermweaveError as error:
        answer = {"message": error.message, "hint": error.hint}  # type: ignore[dict-item]
    answers.write(orjson.dumps(answer))
    answers.flush()
    return 0


def _end(number: int, _frame: object) -> None:
    """End by an exception, so that files which are half written are removed."""
    sys.exit(128 + number)
