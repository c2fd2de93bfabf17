"""Tasks on a Ray cluster (extra `ray`): Ray starts a task again whose worker died, so that a worker's loss costs its task alone."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from termweave.errors import TermweaveError, UsageError
from termweave.indexer.shards.worker import Task, perform
from termweave.support.extras import install
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: How often a task is started again whose worker died.
_RETRIES = 3


class RayCluster:
    """A Ray cluster: that of $RAY_ADDRESS, else one on this host that ends with the work.

    Args:
        workers: Workers of a cluster on this host; None: one for two cores.

    Raises:
        UsageError: Ray is not installed.
        TermweaveError: The cluster cannot be reached or started.
    """

    def __init__(self, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        try:
            ray: Any = import_module("ray")  # it is large, and only a cluster needs it
        except ImportError as error:
            raise UsageError("Ray is not installed.", f"Run `{install('ray')}`.") from error
        self._ray = ray
        address = os.environ.get("RAY_ADDRESS")
        own = {} if address else {"num_cpus": workers or max(1, (os.cpu_count() or 1) // 2), "include_dashboard": False}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise TermweaveError(
                f"The Ray cluster {address or 'on this host'} does not start: {first_line(error)}.", "Correct $RAY_ADDRESS."
            ) from error
        self.size = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, int | TermweaveError]]:
        """Do tasks; yields each when it has ended, with the number of texts, or with what kept it from being done."""
        remote = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(_performed)
        waiting = {remote.remote(task.to_json()): task for task in tasks}
        while waiting:
            ended, _ = self._ray.wait(list(waiting), num_returns=1)
            for reference in ended:
                yield waiting.pop(reference), self._outcome(reference)

    def _outcome(self, reference: Any) -> int | TermweaveError:
        try:
            texts, message, hint = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return TermweaveError(
                f"A worker of the cluster failed: {first_line(error)}.", "Run the same command again: it does what is missing."
            )
        return TermweaveError(message, hint) if message else int(texts)


def _performed(content: bytes) -> tuple[int, str, str]:
    """Do a task on a worker: number of texts, message and hint; an error of termweave itself need not be carried through Ray."""
    try:
        return perform(Task.from_json(content)), "", ""
    except TermweaveError as error:
        return 0, error.message, error.hint
