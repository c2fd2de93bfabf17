"""What is known of an embedded node: its state file, and the lock that lets one start or stop happen at a time."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from termweave import atomic, locks
from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = "termweave.node/1"
#: Seconds between looks at whether another command has ended.
_TICK = 0.2

#: running: every process lives; degraded: some; dead: none, and nobody stopped them; starting: not ready yet.
Phase = Literal["running", "degraded", "dead", "starting", "stopped"]


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """One server process.

    Attributes:
        name: "node-1", "node-2" ...
        pid: Process id.
        port: HTTP port on 127.0.0.1.
        transport: Port on which the processes of a cluster talk to each other.
        alive: Whether the process lives and is ours; found out when the state is read, not stored.
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
    """An embedded node or cluster as it stands.

    Attributes:
        url: Address of the first living process.
        version: Of the server.
        nodes: Its processes.
        state: See `Phase`.
        folder: Where data, logs and configuration lie.
        java: Home of the JDK it runs on.
        heap: Most heap of one process, in MB.
    """

    url: str
    version: str
    nodes: tuple[NodeProcess, ...]
    state: Phase
    folder: str
    java: str = ""
    heap: int = 0

    def as_dict(self) -> dict[str, Any]:
        """As `termweave node status --json` prints it and the state file keeps it."""
        return {"schema": SCHEMA, **asdict(self), "nodes": [asdict(each) | {"url": each.url} for each in self.nodes]}

    def seen(self, alive: Callable[[NodeProcess], bool]) -> NodeState:
        """This state with every process looked up, and the phase that follows."""
        nodes = tuple(replace(each, alive=alive(each)) for each in self.nodes)
        living = [each for each in nodes if each.alive]
        phase = self.state
        if phase != "stopped":
            if not living:
                phase = "dead"
            elif phase != "starting":
                phase = "running" if len(living) == len(nodes) else "degraded"
        return replace(self, nodes=nodes, state=phase, url=living[0].url if living else self.url)


def state_file(home: Path) -> Path:
    """Where the state of a node with this home is written."""
    return home / "state.json"


def read(home: Path) -> NodeState | None:
    """The state as last written; None where there is none, or where it is damaged (an interrupted disk)."""
    import orjson  # noqa: PLC0415

    try:
        found = orjson.loads(state_file(home).read_bytes())
        nodes = tuple(NodeProcess(each["name"], each["pid"], each["port"], each["transport"]) for each in found["nodes"])
        return NodeState(found["url"], found["version"], nodes, found["state"], found["folder"], found["java"], found["heap"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(home: Path, state: NodeState) -> None:
    """Replace the state file in one step: a reader sees the old one or the new one."""
    import orjson  # noqa: PLC0415

    atomic.write(state_file(home), orjson.dumps(state.as_dict(), option=orjson.OPT_INDENT_2))


@contextmanager
def locked(home: Path, *, purpose: str, patience: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the node's lock; the system frees it when the process dies, so it never goes stale.

    Args:
        home: The node's home.
        purpose: "start", "stop" ...: what others are told.
        patience: Seconds to wait for another holder.
        say: Told once when there is another holder.

    Raises:
        TermweaveError: It was held all that time.
    """
    home.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    told = False
    with ExitStack() as lock:
        while True:
            try:
                lock.enter_context(locks.noted(home / "lock", f"{purpose} (process {os.getpid()})"))
                break
            except locks.Held as held:
                if time.monotonic() >= until:
                    raise TermweaveError(
                        f"The embedded node is busy: {held.note or 'another process'} is still under way.",
                        "Wait for it, or stop that process.",
                    ) from None
                # The holder writes its note just after it got the lock: an empty one is about to be filled.
                if held.note and not told:
                    say(f"Waiting for another command: {held.note}.")
                    told = True
                time.sleep(_TICK)
        yield
