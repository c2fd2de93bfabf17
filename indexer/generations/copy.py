"""The server's task that copies the live generation: `index --update --new` changes the copy in place of the live generation.

`_reindex` copies each `_source` with its digests, so nothing is encoded again; verification proves afterwards that everything arrived.
If the copying is interrupted, the copy is kept, and the next update of the same live generation from the same source continues it
(`ledger.unfinished_builds`). The server's own task of copying continues when its client dies. So there must never be two tasks for one copy
(`run` looks for the first), and none may be left behind by a copy that is deleted (`stop`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.connection import quote
from termweave.engine.client.server_errors import block_hint
from termweave.errors import EngineError

if TYPE_CHECKING:
    from termweave.indexer.preparation.corpus_pass import BuildProgress

#: Documents that the task copies at a time; a document of the shipped model has about 4 kB.
_STEP = 1000
#: Seconds between questions about the task.
_POLL = 0.3


def require_reindex(engine: Engine) -> None:
    """Check that the server has `_reindex`, before anything is created.

    Raises:
        EngineError: The server has no `_reindex`.
    """
    try:
        engine.request("POST", "/_reindex", body={}, retry=True)  # a server that has it refuses a request without indices
    except EngineResponseError as error:
        if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
            raise EngineError(
                "The server cannot copy the live generation, because it has no _reindex.",
                "Leave --new out, and delete fewer documents at a time: the update changes the live generation then. Or build a new generation: "
                "leave --update out.",
            ) from error


def run(engine: Engine, live: str, index: str, progress: BuildProgress) -> None:
    """Copy all documents of a generation, and wait until the server is done. If an earlier command started the task, that task is waited for.

    A second task could end after the first, and bring back documents that an update deleted in between.

    Args:
        engine: The server.
        live: The generation to copy.
        index: The copy.
        progress: Called with ("Copying", done, total).

    Raises:
        EngineError: Not everything was copied.
    """
    task = _running(engine, index)
    if task is None:
        settings = engine.request("GET", f"/{quote(live)}/_settings", params={"flat_settings": True})[live]["settings"]
        step = min(_STEP, int(settings.get("index.max_result_window", _STEP)))  # a step is an answer to a search
        source = engine.without_pipeline({"index": live, "size": step})
        body = {"source": source, "dest": {"index": index, "op_type": "create", "pipeline": "_none"}, "conflicts": "proceed"}
        task = str(engine.request("POST", "/_reindex", params={"wait_for_completion": False}, body=body)["task"])
    while True:
        answer: dict[str, Any] = engine.request("GET", f"/_tasks/{quote(task)}")
        status = answer["task"]["status"]
        progress("Copying", status["created"] + status["version_conflicts"], status["total"])
        if answer["completed"]:
            break
        time.sleep(_POLL)
    response = answer.get("response", {})
    failure = answer.get("error") or next(iter(response.get("failures", ())), None)
    reason = failure.get("cause", failure).get("reason", failure) if failure else response.get("canceled")
    if reason:
        hint = f"{block_hint(str(reason))} Run the command again: it continues from there.".lstrip()
        raise EngineError(f"The server could not copy {live}: {reason}.", hint)


def stop(engine: Engine, index: str) -> None:
    """Cancel the server's task that still copies into a generation, and wait until the task has ended.

    If the task continued after the index was deleted, the server would create a new index, without mapping and lineage.
    """
    with suppress(EngineResponseError):  # this role may not see or cancel tasks
        while (task := _running(engine, index)) is not None:
            engine.request("POST", f"/_tasks/{quote(task)}/_cancel")
            time.sleep(_POLL)


def _running(engine: Engine, index: str) -> str | None:
    """Return the id of the server's task that copies into a generation, whoever started it; None: no such task runs."""
    params = {"actions": "indices:data/write/reindex", "detailed": True}
    for node in engine.request("GET", "/_tasks", params=params)["nodes"].values():
        for task, details in node["tasks"].items():
            if details["description"].endswith(f" to [{index}]"):
                return str(task)
    return None
