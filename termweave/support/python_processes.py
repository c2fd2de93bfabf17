"""Start Python processes that import nothing from the working folder, where files of any origin may lie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, TypeAlias

PythonProcess: TypeAlias = "subprocess.Popen[bytes]"


def start_python(*arguments: str, **options: Any) -> PythonProcess:
    """Start Python with pipes for input and output.

    Args:
        arguments: Arguments of the interpreter; ``-I`` also keeps out the environment and the user's packages.
        options: Options of `subprocess.Popen`.
    """
    command = [sys.executable, "-P", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)  # noqa: S603 - this Python


@contextmanager
def process_pool(size: int, **environment: str) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of new Python processes for a `with` statement; they end if its body fails, and if this process ends, even by being killed.

    Args:
        size: The most processes.
        environment: Environment variables of these processes; this process has them, too, as long as the pool exists.
    """
    variables = {**environment, "PYTHONSAFEPATH": "1"}
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        with ProcessPoolExecutor(size, mp_context=get_context("spawn"), initializer=_watch_parent) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in active_children():
                    process.terminate()
                raise
    finally:
        for name in variables.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _watch_parent() -> None:
    """End this process, which belongs to a pool, when its parent has ended: otherwise it would wait for work for ever."""

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
