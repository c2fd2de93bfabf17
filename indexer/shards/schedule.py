"""The whole job: count what is not counted, merge, encode what is missing, on whatever runs tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from termweave.errors import TermweaveError
from termweave.indexer.shards import counting, shard_encoding
from termweave.indexer.shards.worker import Task
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from termweave.indexer.shards.job import EncodingJob, OpenJob
    from termweave.indexer.shards.manifest import Counted, EncodingPlan

    class Runner(Protocol):
        """Something that does tasks: processes of this host, or a cluster."""

        @property
        def size(self) -> int:
            """How many tasks it does at a time."""

        def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, int | TermweaveError]]:
            """Do tasks; yields each with the number of texts that were encoded, or with what kept it from being done."""


#: The stages, for progress.
COUNTING, ENCODING = "Counting", "Encoding"


@dataclass(frozen=True)
class Encoded:
    """The result of `termweave encode`.

    Attributes:
        folder: The folder of shards.
        plan: What the shards hold.
        counted: What was counted.
        done: The shards that are finished.
        shards: How many shards this run encoded.
        texts: How many texts this run encoded.
    """

    folder: str
    plan: EncodingPlan
    counted: Counted
    done: int
    shards: int
    texts: int

    @property
    def complete(self) -> bool:
        """Whether all shards are finished."""
        return self.done == self.plan.shards


def encode_all(job: EncodingJob, opened: OpenJob, runner: Runner, progress: Callable[[int, int, str], None]) -> Encoded:
    """Count and encode all shards that are missing.

    Args:
        job: The job, for the runner.
        opened: The same job, opened.
        runner: Does the tasks.
        progress: Called with (done, total, stage).

    Raises:
        TermweaveError: A task failed; the others were finished, and the same command does what is missing.
    """
    packed = replace(job, threads=_threads(job.threads, runner.size)).to_json()
    if opened.counted is None:
        missing = counting.uncounted(opened)
        # Each task reads the source once, whatever it counts.
        tasks = [Task(packed, "count", tuple(missing[first :: runner.size])) for first in range(min(runner.size, len(missing)))]
        _finished(runner, tasks, lambda done: progress(done, len(tasks), COUNTING))
        counting.merge(opened, lambda _: None)
    todo = shard_encoding.unencoded(opened)
    tasks = [Task(packed, "encode", (shard,)) for shard in todo]
    before = opened.plan.shards - len(todo)
    texts = _finished(runner, tasks, lambda done: progress(before + done, opened.plan.shards, ENCODING))
    return _result(opened, len(todo), texts)


def encode_one(opened: OpenJob, shard: int, progress: Callable[[int, int, str], None]) -> Encoded:
    """Count and encode one shard in this process.

    The statistics need the counts of all shards. What no other process has counted by now is counted here, so that processes need not
    wait for each other, whether they run at the same time or one after the other.
    """
    total = 0
    if opened.counted is None:
        for mine in ([shard], None):
            missing = counting.uncounted(opened)
            chosen = [each for each in missing if mine is None or each in mine]
            if chosen:
                counting.count(opened, chosen, lambda done: progress(done, 0, COUNTING))
        total = counting.merge(opened, lambda _: None).texts
    missing = shard_encoding.unencoded(opened)
    if shard not in missing:
        return _result(opened, 0, 0)
    texts = shard_encoding.encode(opened, shard, lambda done: progress(done, total // opened.plan.shards, ENCODING))
    return _result(opened, 1, texts)


def _finished(runner: Runner, tasks: list[Task], report: Callable[[int], None]) -> int:
    """Do tasks to their end, whether one fails or not; returns the number of texts that were encoded.

    Raises:
        TermweaveError: Some failed.
    """
    failed: list[tuple[Task, TermweaveError]] = []
    texts = 0
    for done, (task, outcome) in enumerate(runner.run(tasks) if tasks else (), 1):
        if isinstance(outcome, TermweaveError):
            failed.append((task, outcome))
        else:
            texts += outcome
        report(done)
    if failed:
        reasons = few(list(dict.fromkeys(error.message for _, error in failed)), between=" ")
        told = f"{counted(len(failed), 'task')} of {len(tasks)} failed ({few([str(task) for task, _ in failed])}): {reasons}"
        hint = failed[0][1].hint or "Run the same command again: it does what is missing."
        raise TermweaveError(told, hint)
    return texts


def _result(opened: OpenJob, shards: int, texts: int) -> Encoded:
    assert opened.counted is not None
    done = opened.plan.shards - len(shard_encoding.unencoded(opened))
    return Encoded(opened.store.shown, opened.plan, opened.counted, done, shards, texts)


def _threads(asked: int | None, size: int) -> int:
    """Threads of each of several processes: together they use the cores once."""
    import os  # noqa: PLC0415

    return asked or max(1, (os.cpu_count() or 1) // size)
