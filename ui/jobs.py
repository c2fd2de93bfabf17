"""Work that takes longer than a page: evaluation, tuning and training run in the background, one at a time, and report their progress."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from termweave.errors import TermweaveError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Jobs whose results stay in memory, and remarks of each.
_MOST_JOBS, _MOST_REMARKS = 20, 200
#: Seconds that a stopped job has to bring its work to an end that can be continued.
_GRACE = 30.0


@dataclass
class BackgroundJob:
    """A piece of work in the background.

    Attributes:
        id: Its name in addresses, which cannot be guessed.
        kind: "evaluate", "tune" or "learn".
        title: What it does, for people.
        about: What it works on, for the page that shows the result.
        stage: What it is doing.
        done: How much of the stage is done.
        total: How much there is; None: not known.
        result: What came out.
        error: Why nothing came out.
        remarks: Sentences that it printed meanwhile.
        stop: Ends it so that it can go on later; None: it cannot be stopped.
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
        """Whether it has not ended yet."""
        return self.result is None and self.error is None


class JobBoard:
    """The jobs of this process. One runs at a time: each uses all processors."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, BackgroundJob] = OrderedDict()
        self._thread = Thread()
        self._lock = Lock()

    def start(self, job: BackgroundJob, work: Callable[[Callable[..., None]], Any]) -> BackgroundJob:
        """Begin to work in a thread.

        Args:
            job: The job.
            work: Gets the function ``update(done, total, stage)`` and returns the result.

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
        return job

    def close(self) -> None:
        """Stop the job that can be stopped, and wait until it has ended. What cannot go on later ends with the process."""
        for job in self.all():
            if job.running and job.stop is not None:
                job.stop()
                self._thread.join(_GRACE)

    def find(self, name: str, kind: str = "", index: str = "") -> BackgroundJob:
        """A job by its id, of a kind and about an index if these are given.

        Raises:
            UsageError: There is none, or it was forgotten, or is of another kind or about another index.
        """
        if (job := self._jobs.get(name)) is None:
            raise UsageError("This result is not kept any more.", "Start it again.")
        if kind not in {"", job.kind} or index not in {"", job.about["index"]}:
            raise UsageError(
                f"This is a result of {job.kind!r} for {job.about['index']}.", f"Open /{job.kind}, or /api/{job.kind}."
            )
        return job

    def all(self) -> list[BackgroundJob]:
        """All jobs that are kept, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def of_kind(self, kind: str, index: str) -> list[BackgroundJob]:
        """The jobs of a kind about an index, the newest first."""
        return [job for job in self.all() if (job.kind, job.about["index"]) == (kind, index)]


def _run(job: BackgroundJob, work: Callable[[Callable[..., None]], Any]) -> None:
    def update(done: int, total: int | None = None, stage: str = "") -> None:
        job.done, job.total, job.stage = done, total, stage

    try:
        job.result = work(update)
    except TermweaveError as error:
        job.error = error
    except Exception as error:
        logging.getLogger(__name__).exception("A fault in the background job %r", job.title)
        job.error = TermweaveError(
            f"A fault in termweave itself: {type(error).__name__}.", "Its details are in the log of 'termweave serve'."
        )
