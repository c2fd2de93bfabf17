"""The separate process that runs `termweave learn`: pages stay fast, a stopped run can be continued, and the process ends when the server ends.

The server writes a `LearningJob` to the standard input of the process and keeps this input open; it reads lines of JSON from the standard output
of the process. When standard input is closed, because somebody stopped the training or the server has ended in whatever way, the process
interrupts itself as Ctrl-C would.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from termweave import engine
from termweave.errors import TermweaveError, UsageError
from termweave.support import paths, private_files
from termweave.support.python_processes import PythonProcess, start_python

if TYPE_CHECKING:
    from termweave.settings import Settings

#: How much less often than other processes it gets a processor: searches come first.
_NICE = 10
_RESUMED = "The button Learn on the page Learn continues the training."
#: Set in the process that learns when it is to end.
_INTERRUPTED = threading.Event()


@dataclass(frozen=True)
class LearningJob:
    """The task of a learning process: `termweave learn` with the judged queries (book) of an index and the server's log of user behaviour.

    Attributes:
        settings: Settings by which the search server is reached.
        name: Name of the index.
        models: Models to use in place of the models that the index names: keyword of `search.Index.open` -> model.
    """

    settings: Settings
    name: str
    models: Mapping[str, str | None]

    @property
    def log(self) -> Path:
        """The log file that gets the text that libraries print during training."""
        return paths.state() / "learned" / self.name / "log.txt"


class LearningProcess:
    """A run of `termweave learn` in a separate process, as the server sees it: start, wait for the result, stop."""

    def __init__(self, task: LearningJob) -> None:
        self._task = task
        self._process: PythonProcess | None = None
        self._stopped = False

    def run(self, update: Callable[..., None], say: Callable[[str], None]) -> dict[str, Any]:
        """Start the process, wait until it has learned, and return the fields of `learning.run.Learned` as JSON data.

        Args:
            update: Called with (done, total, stage) to report progress.
            say: Called with each sentence that the process reports; `update` gets the sentence as a stage, too.

        Raises:
            TermweaveError: The training failed or was stopped.
        """
        private_files.make_folder(self._task.log.parent.parent)
        private_files.make_folder(self._task.log.parent)
        with private_files.open_private(self._task.log, "wb") as log:
            # A new session: Ctrl-C in a terminal is for the server, which then closes the pipe.
            self._process = start_python("-m", __name__, stderr=log, start_new_session=True)
        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(pickle.dumps(self._task))
                process.stdin.flush()
            except (BrokenPipeError, ValueError):  # it died at once, or was stopped at once: what follows says so
                with suppress(BrokenPipeError):  # of what was not sent
                    process.stdin.close()
            if self._stopped:
                process.stdin.close()
            for line in process.stdout:
                message = json.loads(line)
                if "result" in message:
                    result: dict[str, Any] = message["result"]
                    return result
                if "error" in message:
                    raise TermweaveError(message["error"], message["hint"])
                if "say" in message:
                    say(message["say"])
                update(message.get("done", 0), message.get("total"), message.get("stage", message.get("say")))
        if self._stopped:
            raise UsageError("The training was stopped.", _RESUMED)
        message = f"The training ended without a result (status {process.returncode})."
        raise TermweaveError(message, f"Its messages are in {self._task.log}. {_RESUMED}")

    def stop(self) -> None:
        """Make the process write a checkpoint, from which a later run continues, and end."""
        self._stopped = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def main() -> None:
    """Run the `LearningJob` that standard input holds; write progress and the result or the error to standard output, as lines of JSON."""
    os.nice(_NICE)
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as out:
        os.dup2(2, 1)  # what libraries print is not a message
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        task: LearningJob = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
        threading.Thread(target=_wait_for_the_end, daemon=True).start()
        try:
            _tell(out, result=_learn(task, out))
        except KeyboardInterrupt:
            sys.exit(130)
        except TermweaveError as error:
            _tell(out, error=error.message, hint=error.hint)
        except Exception as error:  # noqa: BLE001 - the page must say something; the log has the rest
            if _INTERRUPTED.is_set():  # pydantic makes an error of its own of an interrupt
                sys.exit(130)
            traceback.print_exc()
            _tell(out, error=f"A fault in termweave itself: {type(error).__name__}.", hint=f"Its details are in {task.log}.")


def _learn(task: LearningJob, out: TextIO) -> dict[str, Any]:
    from termweave.learning.preparation import CONNECTIONS, LearningTask, Reports  # noqa: PLC0415 - likewise
    from termweave.learning.run import learn  # noqa: PLC0415 - likewise

    def update(done: int, total: int | None = None, stage: str = "", _detail: str = "") -> None:
        _tell(out, done=done, total=total, stage=stage)

    with engine.connect(task.settings, pool_maxsize=CONNECTIONS) as server:
        reports = Reports(update, lambda line: _tell(out, say=line))
        return learn(server, LearningTask(task.name, models=task.models), reports).as_json()


def _wait_for_the_end() -> None:
    """Wait until standard input is closed, then interrupt this process as Ctrl-C would."""
    while os.read(0, 1 << 16):
        pass
    _INTERRUPTED.set()
    os.kill(os.getpid(), signal.SIGINT)


def _tell(out: TextIO, **message: object) -> None:
    try:
        out.write(json.dumps(message) + "\n")
    except BrokenPipeError:  # the server has ended: the checkpoint is written all the same
        sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    main()
