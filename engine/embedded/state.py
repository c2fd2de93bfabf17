"""The state file of an embedded node, and the lock that lets only one command at a time start or stop the node."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from termweave.errors import TermweaveError
from termweave.support import atomic_files, file_locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = "termweave.node/1"
#: Seconds between two attempts to take the lock.
_TICK = 0.2

#: The one process of a node.
NAME = "node-1"
#: dead: the process ended, though nobody stopped it; starting: it is not ready yet.
Phase = Literal["running", "dead", "starting", "stopped"]


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """One server process.

    Attributes:
        name: `NAME`.
        pid: Process id.
        port: HTTP port on 127.0.0.1.
        transport: Port for other nodes, of which there are none.
        alive: Whether the process runs and is ours; checked when the state is read, not stored.
    """

    name: str
    pid: int
    port: int
    transport: int
    alive: bool = True

    @property
    def url(self) -> str:
        """Address of this process."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of an embedded node.

    Attributes:
        url: Address.
        version: Version of the server.
        nodes: The node's one process, in a list, as in the state file of version 0.1.0.
        state: See `Phase`.
        folder: Folder of data, logs and configuration.
        java: Home of the JDK that the server runs on.
        heap: Maximum heap in MB.
        ml: Whether the server has the plugin ml-commons.
    """

    url: str
    version: str
    nodes: tuple[NodeProcess, ...]
    state: Phase
    folder: str
    java: str = ""
    heap: int = 0
    ml: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON of `termweave node status --json` and of the state file."""
        return {"schema": SCHEMA, **asdict(self), "nodes": [asdict(each) | {"url": each.url} for each in self.nodes]}

    def refreshed(self, alive: Callable[[NodeProcess], bool]) -> NodeState:
        """A copy of this state after `alive` has checked each process, with the phase that follows from these checks."""
        nodes = tuple(replace(each, alive=alive(each)) for each in self.nodes)
        phase = self.state if self.state == "stopped" or any(each.alive for each in nodes) else "dead"
        return replace(self, nodes=nodes, state=phase)


def state_file(home: Path) -> Path:
    """The state file of a node with this home."""
    return home / "state.json"


def read(home: Path) -> NodeState | None:
    """Read the state file; None: the file does not exist, or is damaged."""
    import orjson  # noqa: PLC0415 - the command line names nodes without it

    try:
        state = orjson.loads(state_file(home).read_bytes())
        nodes = tuple(NodeProcess(each["name"], each["pid"], each["port"], each["transport"]) for each in state["nodes"])
        # A newer version may write more.
        values = {field.name: state[field.name] for field in fields(NodeState) if field.name in state}
        return NodeState(**{**values, "nodes": nodes})
    except (OSError, ValueError, KeyError, TypeError):
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
                    raise TermweaveError(message, "Wait until it has ended, or stop that process.") from None
                # A command writes its note just after it took the lock, so an empty note is about to be filled.
                if held.note and not announced:
                    say(f"Waiting for another command: {held.note}.")
                    announced = True
                time.sleep(_TICK)
        yield
