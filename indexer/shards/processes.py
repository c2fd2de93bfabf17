"""Tasks in processes of this host. A process that dies costs its task alone, which is done once more."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from termweave.errors import TermweaveError
from termweave.support.python_processes import start_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.indexer.shards.worker import Task
    from termweave.support.python_processes import PythonProcess

#: How often a task is tried whose process died.
_TRIES = 2
#: Seconds between two looks at the processes, and seconds that they have to remove what they have half written.
_TICK, _GRACE = 0.05, 3.0
#: What a process runs. Ctrl-C reaches every process of a terminal: the command ends them, and they say nothing.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from termweave.indexer.shards.worker import main
sys.exit(main())
"""


@dataclass
class _Running:
    task: Task
    process: PythonProcess


class Processes:
    """Runs tasks in processes of this host.

    Args:
        size: How many at a time.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, int | TermweaveError]]:
        """Do tasks; yields each when it has ended, with the number of texts, or with what kept it from being done."""
        waiting, tried = deque(tasks), dict.fromkeys(tasks, 0)
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self.size:
                    task = waiting.popleft()
                    tried[task] += 1
                    running.append(_Running(task, _started(task)))
                ended = [each for each in running if each.process.poll() is not None]
                running = [each for each in running if each not in ended]
                for each in ended:
                    outcome = _outcome(each.process)
                    if outcome is None and tried[each.task] < _TRIES:
                        waiting.append(each.task)
                    else:
                        yield each.task, _died(each.process) if outcome is None else outcome
                if not ended:
                    time.sleep(_TICK)
        finally:
            for each in running:
                each.process.terminate()
            until = time.monotonic() + _GRACE
            for each in running:
                with suppress(subprocess.TimeoutExpired):
                    each.process.wait(max(0.0, until - time.monotonic()))
                each.process.kill()
                each.process.communicate()


def _started(task: Task) -> PythonProcess:
    process = start_python("-c", _PROGRAM, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdin is not None
    try:
        process.stdin.write(task.to_json())
        process.stdin.close()
    except BrokenPipeError:  # it died at once: its status says so
        pass
    process.stdin = None
    return process


def _outcome(process: PythonProcess) -> int | TermweaveError | None:
    """The number of texts, or the error that the process told; None if it died."""
    said, _ = process.communicate()
    if process.returncode != 0:
        return None
    answer = orjson.loads(said)
    if "texts" in answer:
        return int(answer["texts"])
    return TermweaveError(answer["message"], answer["hint"])


def _died(process: PythonProcess) -> TermweaveError:
    how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else f"ended with status {process.returncode}"
    return TermweaveError(
        f"A process {how}.",
        "If the memory was full, use fewer --processes. Run the same command again: it does what is missing.",
    )
