"""The state file of an embedded node, and the lock that lets only one command at a time start or stop the node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from termweave.errors import TermweaveError
from termweave.support import atomic_files, file_locks

SCHEMA = "termweave.node/1"
#: Seconds between two attempts to take the lock.
_TICK = 0.2

#: Name of the node's one process, in its files and in the list `nodes` of the state file.
NAME = "node-1"
#: dead: the process ended, though nobody stopped it; starting: it is not ready yet.
Phase = Literal["running", "dead", "starting", "stopped"]


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of an embedded node.

    Attributes:
        version: Version of the server.
        pid: Process id of the server.
        port: HTTP port on 127.0.0.1.
        transport: Port for other nodes, of which there are none.
        state: See `Phase`.
        folder: Folder of data, logs and configuration.
        java: Home of the JDK that the server runs on.
        heap: Maximum heap in MB.
        ml: Whether the server has the plugin ml-commons.
        alive: Whether the process runs and is ours.
    """

    version: str
    pid: int
    port: int
    transport: int
    state: Phase
    folder: str
    java: str = ""
    heap: int = 0
    ml: bool = False
    alive: bool = True

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `termweave node status --json` and of the state file, where the process is the only entry of a list."""
        values = asdict(self)
        process = {name: values.pop(name) for name in ("pid", "port", "transport", "alive")}
        return {"schema": SCHEMA, "url": self.url, **values, "nodes": [{"name": NAME, **process, "url": self.url}]}

    def refreshed(self, *, alive: bool) -> NodeState:
        """A copy of this state after a check whether the process runs, with the phase that follows."""
        return replace(self, alive=alive, state=self.state if alive or self.state == "stopped" else "dead")


def state_file(home: Path) -> Path:
    """The state file of a node with this home."""
    return home / "state.json"


def read(home: Path) -> NodeState | None:
    """Read the state file; None: the file does not exist, or is damaged."""
    import orjson  # noqa: PLC0415 - the command line names nodes without it

    try:
        state = orjson.loads(state_file(home).read_bytes())
        values = {**state, **state["nodes"][0]}
        return NodeState(**{field.name: values[field.name] for field in fields(NodeState) if field.name in values})
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write(home: Path, state: NodeState) -> None:
    """Replace the state file in one step: a reader sees the old state or the new one."""
    import orjson  # noqa: PLC0415 - likewise

    atomic_files.write(state_file(home), orjson.dumps(state.as_dict(), option=orjson.OPT_INDENT_2))


@contextmanager
def locked(home: Path, *, purpose: str, patience: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a node. The system releases the lock when the process ends, so it is never left behind.

    Args:
        home: The node's home.
        purpose: The action of this command ("start", "stop"), which is shown to commands that wait for the lock.
        patience: Seconds to wait for another command that holds the lock.
        say: Called once with a message if another command holds the lock.

    Raises:
        TermweaveError: Another command held the lock all that time.
    """
    home.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    announced = False
    with ExitStack() as lock:
        while True:
            try:
                lock.enter_context(file_locks.noted(home / "lock", f"{purpose} (process {os.getpid()})"))
                break
            except file_locks.Held as held:
                if time.monotonic() >= until:
                    message = f"The embedded node is busy: {held.note or 'another process'} is still under way."
                    raise TermweaveError(message, "Wait until that command has ended, or stop its process.") from None
                # A command writes its note just after it took the lock, so an empty note is about to be filled.
                if held.note and not announced:
                    say(f"Waiting for another command: {held.note}.")
                    announced = True
                time.sleep(_TICK)
        yield
