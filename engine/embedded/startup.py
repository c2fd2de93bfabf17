"""Start the server: check memory and disk, choose ports, start the process, and wait until its indices can be used."""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.engine.embedded import artifacts, folders, java, process
from termweave.engine.embedded import state as states
from termweave.engine.embedded.process import Layout
from termweave.engine.embedded.state import NodeState
from termweave.errors import EngineUnreachable, TermweaveError
from termweave.support.messages import sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Always loopback: the embedded server has no security plugin.
_HOST = "127.0.0.1"
#: Free ports are chosen below those that systems give to connections (Linux from 32768, macOS and Windows from 49152): no connection takes
#: one while the server starts.
_PORTS = range(20_000, 32_768)
#: Bytes of memory of the process (measured: 650 MB with 1 GB of heap).
_PROCESS = 700_000_000
#: The least heap that is chosen, in MB.
_LEAST = 512
#: Files of a control group, of version 2 and of version 1: its limit, its use, and what its use consists of.
_V1 = "/sys/fs/cgroup/memory/memory"
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (f"{_V1}.limit_in_bytes", f"{_V1}.usage_in_bytes", f"{_V1}.stat"),
)


class PortTakenError(TermweaveError):
    """Another program took a port between its choice and the start of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """The arguments of a start; see `node.start`.

    Attributes:
        home: Folder of the node.
        port: HTTP port; None: any free port.
        same_ports: Whether the ports of the last start are taken again if they are free.
        heap: Maximum heap in MB; None: chosen from the memory.
        ml: Whether the server has the plugin ml-commons.
        patience: Seconds to wait for the server.
        say: Called with messages about the progress.
    """

    home: Path
    port: int | None
    same_ports: bool = True
    heap: int | None
    ml: bool
    patience: float
    say: Callable[[str], None]


def start(request: StartRequest, before: NodeState | None) -> NodeState:
    """Start the server. The caller holds the lock of the node, and the server does not run.

    Args:
        request: The arguments of the start.
        before: State of the node before this start: its ports are taken again if they are free.

    Raises:
        PortTakenError: Another program took a port after it was chosen.
        TermweaveError: The start failed for another reason. No process that was started here is left.
    """
    root = folders.run_folder(request.home)
    folders.require_space(root, folders.START_NEEDS, "a node")
    port, transport = _ports(request, before)
    heap = request.heap or heap_size(before.heap if before is not None else 0)
    jdk = java.find(request.say)
    distribution = artifacts.distribution(request.say, ml=request.ml)
    began = time.monotonic()
    request.say(f"Starting OpenSearch {artifacts.VERSION} on Java {jdk.major} (10 to 20 s).")
    layout = Layout(root)
    process.configure(layout, distribution, port, transport, process.ML_SETTINGS if request.ml else ())
    pid = process.launch(layout, distribution, jdk, heap)
    state = NodeState(artifacts.VERSION, pid, port, transport, "starting", str(root), str(jdk.home), heap, request.ml)
    try:
        # Written before the server is ready: if this start is killed, the next command still finds the process.
        states.write(request.home, state)
        _wait(request, layout, state)
    except BaseException:
        # On Ctrl-C, too: an unfinished start leaves no process.
        process.end(layout, pid)
        states.write(request.home, replace(state, state="stopped"))
        raise
    ready = replace(state, state="running")
    states.write(request.home, ready)
    request.say(f"OpenSearch {ready.version} answers at {ready.url} after {time.monotonic() - began:.0f} s.")
    return ready


def _ports(request: StartRequest, before: NodeState | None) -> tuple[int, int]:
    """The HTTP port and the transport port: those of the last start if they are free, else new ones."""
    free = free_ports()
    last = before if request.same_ports else None
    transport = last.transport if last is not None and _is_free(last.transport) else next(free)
    if request.port is None:
        return last.port if last is not None and _is_free(last.port) else next(free), transport
    if not _is_free(request.port):
        advice = "Choose another --port, or leave --port out to use any free port."
        raise TermweaveError(f"Port {request.port} is taken by another program.", advice)
    return request.port, transport


def _wait(request: StartRequest, layout: Layout, state: NodeState) -> None:
    """Wait until the indices of the server can be used.

    Raises:
        PortTakenError: The process ended because its port was taken.
        EngineUnreachable: The server did not become ready in time.
        TermweaveError: The process ended.
    """
    last_message = time.monotonic()
    until = last_message + request.patience
    while True:
        if not layout.runs(state.pid):
            wrong, advice = process.cause_of_death(layout)
            if wrong == process.PORT_TAKEN:
                raise PortTakenError(f"The server ended while it started: {wrong} ({state.port} or {state.transport}).", advice)
            raise TermweaveError(f"The server ended while it started: {wrong}.", advice)
        status = _health(state.port).get("status", "unknown")
        if status in {"green", "yellow"}:
            return
        now = time.monotonic()
        if now > until:
            advice = f"Look at {layout.log}; a busy machine needs more time."
            raise EngineUnreachable(f"The server did not become ready in {request.patience:.0f} s (status {status}).", advice)
        if now - last_message > 10:
            request.say("Still starting.")
            last_message = now
        time.sleep(0.25)


def _health(port: int) -> dict[str, Any]:
    """The response of `_cluster/health`; {}: there is none. The standard library suffices: the client takes 150 ms to import."""
    try:
        with closing(http.client.HTTPConnection(_HOST, port, timeout=5)) as connection:
            connection.request("GET", "/_cluster/health?local=true")
            health = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return health if isinstance(health, dict) else {}


def _is_free(port: int) -> bool:
    """Whether no program listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port that was just released is free
        try:
            probe.bind((_HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def free_ports() -> Iterator[int]:
    """Ports on which no program listens, each once, in random order.

    Raises:
        TermweaveError: No free port is left.
    """
    yield from (port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))
    raise TermweaveError(f"No port from {_PORTS[0]} to {_PORTS[-1]} is free.", "End servers that are not needed.")


def total_and_available() -> tuple[int, int]:
    """Total and available memory of this machine, or of the container in which this process runs if the container has less.

    Returns:
        ``(total, available)`` in bytes.
    """
    import psutil  # noqa: PLC0415 - 17 ms, only for starting a node and for doctor

    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    if sys.platform == "linux":
        for limit_file, used_file, parts_file in _GROUPS:
            try:
                limit, used = int(Path(limit_file).read_text()), int(Path(used_file).read_text())
                parts = dict(line.split() for line in Path(parts_file).read_text().splitlines())
                # The page cache counts as used, and the kernel gives it up when a process needs memory.
                prefix = "total_" if "total_inactive_file" in parts else ""
                used -= sum(int(parts[f"{prefix}{name}"]) for name in ("active_file", "inactive_file"))
            except (OSError, ValueError, KeyError):  # no such control group, or "max": no limit
                continue
            if limit < total:
                total, available = limit, min(available, max(limit - used, 0))
    return total, available


def heap_size(last: int = 0) -> int:
    """Choose the server's heap in MB: an eighth of the memory, between 512 MB and 1 GB.

    Args:
        last: The heap of the last start, which is kept; 0: there was no start. A heap below 512 was chosen because memory is scarce.

    Raises:
        TermweaveError: There is too little memory.
    """
    total, available = total_and_available()
    if available < _PROCESS and not 0 < last < _LEAST:
        hint = "Close other programs, or start the server with less memory: --heap 400."
        raise TermweaveError(f"{sized(available)} of memory are free, and the server needs {sized(_PROCESS)}.", hint)
    return last or max(_LEAST, min(1024, total // 8 // 2**20))
