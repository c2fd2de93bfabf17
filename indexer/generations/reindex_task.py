"""The engine's own copying of one generation into another: a task of the cluster, which goes on when its client dies.

So there is never a second one for the same copy (`run`), and none is left behind by a copy that is removed (`stop`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.connection import quote
from termweave.errors import EngineError

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.indexer.survey import Progress

#: Documents a step; a document of the shipped model has some 4 kB.
_STEP = 1000
_LOOK = 0.3


def run(engine: Engine, live: str, index: str, progress: Progress) -> None:
    """Copy a generation, to the end; with a task that was begun before, where it still runs.

    A second one could end first: what an update deletes then, the first would bring back.

    Args:
        engine: The cluster.
        live: What is copied.
        index: Into what.
        progress: Told ("Copying", done, total).

    Raises:
        EngineError: Not everything was copied.
    """
    task = _running(engine, index)
    if task is None:
        body = {"source": {"index": live, "size": _STEP}, "dest": {"index": index, "op_type": "create"}, "conflicts": "proceed"}
        task = engine.request("POST", "/_reindex", params={"wait_for_completion": False}, body=body)["task"]
    while True:
        told: dict[str, Any] = engine.request("GET", f"/_tasks/{quote(task)}")
        status = told["task"]["status"]
        progress("Copying", status["created"] + status["version_conflicts"], status["total"])
        if told["completed"]:
            break
        time.sleep(_LOOK)
    answer = told.get("response", {})
    trouble = told.get("error") or next(iter(answer.get("failures", ())), None)
    reason = trouble.get("cause", trouble).get("reason", trouble) if trouble else answer.get("canceled")
    if reason:
        raise EngineError(f"The engine could not copy {live}: {reason}.", "Run the command again: it goes on from there.")


def stop(engine: Engine, index: str) -> None:
    """End what still copies into a generation.

    It would go on after the index was deleted: the engine makes one anew then, without mapping and lineage.
    """
    with suppress(EngineResponseError):  # this role may not see or end it
        while (task := _running(engine, index)) is not None:
            engine.request("POST", f"/_tasks/{quote(task)}/_cancel")
            time.sleep(_LOOK)


def _running(engine: Engine, index: str) -> str | None:
    """The task that copies into a generation, where there is one, whoever began it."""
    params = {"actions": "indices:data/write/reindex", "detailed": True}
    for node in engine.request("GET", "/_tasks", params=params)["nodes"].values():
        for task, told in node["tasks"].items():
            if told["description"].endswith(f" to [{index}]"):
                return str(task)
    return None
