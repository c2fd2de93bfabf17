"""Start, stop and inspect the embedded node, a real OpenSearch without Docker.

Every function takes the `home` of a node, so that tests and other programs can have their own; the default is the user's node.
The home holds the state file and the lock. Data, logs and configuration are in the same folder, or in the system's state folder if root
starts a server that cannot enter the home (`NodeState.folder` names it).
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from termweave.engine.embedded import artifacts, folders, java, process
from termweave.engine.embedded import state as states
from termweave.engine.embedded.process import Layout
from termweave.engine.embedded.state import NodeState
from termweave.errors import EngineUnreachable, TermweaveError, UsageError
from termweave.support.messages import sized

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
#: Seconds to wait for a start, which usually takes 10 to 18.
_PATIENCE = 240.0
#: How often a start tries other ports after another program took the ones it had chosen.
_OTHER_PORTS = 2


def start(
    *,
    port: int | None = None,
    heap: int | None = None,
    ml: bool = False,
    home: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    patience: float = _PATIENCE,
) -> NodeState:
    """Start the embedded node, or return its state if it runs already. Data of an earlier start are kept.

    Args:
        port: HTTP port; default: the port of the last start if it is free, else any free port.
        heap: Maximum heap in MB; default: that of the last start, else an eighth of the memory, 512 to 1024.
        ml: Start the node with the plugin ml-commons, which `termweave connect` needs. Later starts have the plugin, too.
        home: Folder of the node; default: the user's.
        say: Called with messages about the progress.
        patience: Seconds to wait for the server, and for another command that starts or stops the node.

    Raises:
        UsageError: The heap is too small, or the node runs with another port, heap or set of plugins.
        TermweaveError: There is no Java, archive, space, memory or port, or the server ends while it starts.
    """
    if heap is not None and heap < 256:
        raise UsageError(f"The server does not run with {heap} MB of heap.", "--heap takes 256 or more.")
    home = home or folders.default_home()
    with states.locked(home, purpose="start", patience=patience, say=say):
        state = status(home)
        if state is not None:
            if state.state == "running":
                _require_same(state, port, heap, ml=ml)
                return state
            ml = ml or state.ml
            if state.state == "dead":
                say("The node ended without being stopped (killed, or the machine went down); starting it with its data.")
            if state.state == "starting":  # we have the lock, so the command that was starting it has ended
                process.end(Layout(Path(state.folder)), state.pid)
                state = status(home)
        request = _Start(home=home, port=port, heap=heap, ml=ml, patience=patience, say=say)
        for _ in range(_OTHER_PORTS if port is None else 0):
            try:
                return _start(request, state)
            except PortTakenError:
                say("Another program took the port; trying other ports.")
                request, state = replace(request, same_ports=False), status(home)
        return _start(request, state)


def _require_same(state: NodeState, port: int | None, heap: int | None, *, ml: bool) -> None:
    """Raise an error if the running node has another port or heap, or lacks the plugin.

    Raises:
        UsageError: The port, the heap or the plugin differs.
    """
    for differs, difference in (
        (port not in {None, state.port}, f", at {state.url}"),
        (heap not in {None, state.heap}, f", with {state.heap} MB of heap"),
        (ml and not state.ml, ", without ml-commons"),
    ):
        if differs:
            raise UsageError(f"The node is running already{difference}.", "Stop it first: termweave node stop.")


def status(home: Path | None = None) -> NodeState | None:
    """The current state of the node, after a check of its process; None: the node was never started."""
    home = home or folders.default_home()
    state = states.read(home)
    return None if state is None else state.refreshed(alive=Layout(Path(state.folder)).runs(state.pid))


def running(home: Path | None = None) -> NodeState | None:
    """The state of the node if it runs and has become ready; None: it does not run, or is not ready yet."""
    state = status(home)
    return state if state is not None and state.state == "running" else None


def stop(home: Path | None = None, *, say: Callable[[str], None] = lambda _: None) -> NodeState | None:
    """Stop the node and keep its data. A node that does not run stays as it is.

    Returns:
        The node's state before it was stopped; None: the node was never started.
    """
    home = home or folders.default_home()
    if status(home) is None:
        return None
    with states.locked(home, purpose="stop", patience=_PATIENCE, say=say):
        state = status(home)
        if state is not None:
            process.end(Layout(Path(state.folder)), state.pid)
            states.write(home, replace(state, state="stopped"))
        return state


def wipe(home: Path | None = None, *, say: Callable[[str], None] = lambda _: None) -> int:
    """Stop the node and remove its data, logs and configuration.

    Returns:
        Number of bytes that were freed.
    """
    home = home or folders.default_home()
    state = stop(home, say=say)
    freed = 0
    for root in {home, Path(state.folder) if state is not None else home}:
        for name in ("data", "logs", "conf", "tmp"):
            freed += folders.size(root / name)
            shutil.rmtree(root / name, ignore_errors=True)
        if root != home:
            shutil.rmtree(root, ignore_errors=True)
    states.state_file(home).unlink(missing_ok=True)
    return freed


def logs(home: Path | None = None, *, lines: int = 100) -> str:
    """The last lines of the server's log, or of its output if it ended before it logged anything.

    Raises:
        UsageError: The node was never started.
    """
    state = status(home)
    if state is None:
        raise UsageError("The embedded node was never started.", "Start one with: termweave node start.")
    layout = Layout(Path(state.folder))
    return process.tail(layout.log, lines) or process.tail(layout.output, lines)


class PortTakenError(TermweaveError):
    """Another program took a port between its choice and the start of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The arguments of a start; see `start`.

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


def _start(request: _Start, before: NodeState | None) -> NodeState:
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


def _ports(request: _Start, before: NodeState | None) -> tuple[int, int]:
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


def _wait(request: _Start, layout: Layout, state: NodeState) -> None:
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
