"""Background jobs of the pages: evaluation, tuning and learning run one at a time in a thread and report their progress."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from termweave.errors import TermweaveError, UsageError

#: Jobs whose results stay in memory, and remarks of each.
_MOST_JOBS, _MOST_REMARKS = 20, 200
#: Seconds that a stopped job has to bring its work to an end that can be continued.
_GRACE = 30.0


@dataclass
class BackgroundJob:
    """A piece of work in the background.

    Attributes:
        id: The name of the job in addresses of pages, random so that nobody guesses it.
        kind: "evaluate", "tune" or "learn".
        title: What the job does, in words for the user.
        about: What the job works on, such as "index" -> its name, for the page that shows the result.
        stage: What the job is doing now, in words.
        done: How many units of the present stage are done.
        total: How many units the present stage has; None: the number is not known.
        result: The result; None: there is none, or none yet.
        error: The error that ended the job; None: the job has not failed.
        remarks: Sentences that the job reported while it ran, the last 200.
        stop: Function that ends the job so that a later job can continue the work; None: the job cannot be stopped.
    """

    kind: str
    title: str
    about: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(8))
    stage: str = ""
    done: int = 0
    total: int | None = None
    result: Any = None
    error: TermweaveError | None = None
    remarks: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_REMARKS))
    stop: Callable[[], None] | None = None

    @property
    def running(self) -> bool:
        """Whether the job has neither a result nor an error yet."""
        return self.result is None and self.error is None


class JobBoard:
    """The background jobs of this process. Only one job runs at a time, because each uses all processors."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, BackgroundJob] = OrderedDict()
        self._thread = Thread()
        self._lock = Lock()

    def start(self, job: BackgroundJob, work: Callable[[Callable[..., None]], Any]) -> None:
        """Add a job and begin its work in a thread.

        Args:
            job: The job, which gets the progress and the result of the work.
            work: The work: is called with the function ``update(done, total, stage)``, which reports progress, and returns the result.

        Raises:
            UsageError: Another job is running.
        """
        with self._lock:
            if busy := next((each for each in self._jobs.values() if each.running), None):
                raise UsageError(f"{busy.title} is running.", "Wait until it has ended.")
            self._jobs[job.id] = job
            while len(self._jobs) > _MOST_JOBS:
                self._jobs.popitem(last=False)
            self._thread = Thread(target=_run, args=(job, work), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the running job if it can be stopped, and wait until it has ended. A job that cannot be stopped ends with the process."""
        for job in self.all():
            if job.running and job.stop is not None:
                job.stop()
                self._thread.join(_GRACE)

    def find(self, name: str, kind: str = "", index: str = "") -> BackgroundJob:
        """Find a job by its id, and check its kind and its index if these are given ("": not checked).

        Raises:
            UsageError: There is no such job, or it was forgotten, or it is of another kind or about another index.
        """
        if (job := self._jobs.get(name)) is None:
            raise UsageError("This result is not kept any more.", "Start the work again.")
        if kind not in {"", job.kind} or index not in {"", job.about["index"]}:
            message = f"This id names a result of {job.kind!r} for the index {job.about['index']!r}."
            raise UsageError(message, f"Open /{job.kind}, or /api/{job.kind}.")
        return job

    def all(self) -> list[BackgroundJob]:
        """All jobs that are kept in memory, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))


def _run(job: BackgroundJob, work: Callable[[Callable[..., None]], Any]) -> None:
    def update(done: int, total: int | None = None, stage: str = "") -> None:
        job.done, job.total, job.stage = done, total, stage

    try:
        job.result = work(update)
    except TermweaveError as error:
        job.error = error
    except Exception as error:
        logging.getLogger(__name__).exception("A fault in the background job %r", job.title)
        message = f"A fault in termweave itself: {type(error).__name__}."
        job.error = TermweaveError(message, "Its details are in the log of 'termweave serve'.")
