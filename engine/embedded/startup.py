"""Start a cluster: check memory and disk, choose ports, start the processes, and wait until the cluster is ready."""

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
from termweave.engine.embedded.state import NodeProcess, NodeState
from termweave.errors import EngineUnreachable, TermweaveError
from termweave.support.messages import counted, sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Always loopback: the embedded server has no security plugin.
_HOST = "127.0.0.1"
#: Free ports are chosen below those that systems give to connections (Linux from 32768, macOS and Windows from 49152): no connection takes
#: one while the server starts.
_PORTS = range(20_000, 32_768)
#: Bytes of memory of one process with 512 MB of heap (measured: 460 MB in a cluster, 650 MB alone with 1 GB of heap).
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
        count: Number of processes.
        port: HTTP port of the first process; None: any free one.
        same_ports: Whether the ports of the last start are taken again if they are free.
        heap: Maximum heap of one process in MB; None: chosen from the memory.
        ml: Whether the server has the plugin ml-commons.
        patience: Seconds to wait for the server.
        say: Called with messages about the progress.
    """

    home: Path
    count: int
    port: int | None
    same_ports: bool = True
    heap: int | None
    ml: bool
    patience: float
    say: Callable[[str], None]


def start(request: StartRequest, before: NodeState | None) -> NodeState:
    """Start the processes that do not run yet. The caller holds the lock of the node.

    Args:
        request: The arguments of the start.
        before: State of the node before this start. Processes that run are kept, and so are ports that are free.

    Raises:
        PortTakenError: Another program took a port after it was chosen.
        TermweaveError: The start failed for another reason. No process that was started here is left.
    """
    root = folders.run_folder(request.home)
    folders.require_space(root, folders.START_NEEDS, "a node")
    plan = _plan(request, before)
    heap = request.heap or heap_size(sum(not each.alive for each in plan), before.heap if before is not None else 0)
    jdk = java.find(request.say)
    distribution = artifacts.distribution(request.say, ml=request.ml)
    began = time.monotonic()
    many = f" as a cluster of {request.count} processes" if request.count > 1 else ""
    request.say(f"Starting OpenSearch {artifacts.VERSION}{many} on Java {jdk.major} (10 to {20 * request.count} s).")
    state = NodeState(plan[0].url, artifacts.VERSION, tuple(plan), "starting", str(root), str(jdk.home), heap, request.ml)
    started: list[NodeProcess] = []
    joined: set[int] = set()
    try:
        for number, planned in enumerate(plan):
            if planned.alive:
                continue
            layout = Layout(root, planned.name)
            settings = [*_discovery(layout, plan), *(process.ML_SETTINGS if request.ml else ())]
            process.configure(layout, distribution, planned.port, planned.transport, settings)
            plan[number] = process.launch(layout, distribution, jdk, heap=heap, port=planned.port, transport=planned.transport)
            started.append(plan[number])
            # Written after each process: if this start is killed, the next command still finds the process.
            state = replace(state, nodes=tuple(plan))
            states.write(request.home, state)
        _wait(request, root, plan, started, joined)
    except BaseException:
        # On Ctrl-C, too: an unfinished start leaves no process.
        process.end(root, started)
        if started:
            others_run = any(each.alive for each in plan if each not in started)
            # Processes that never joined have no data and no vote: without them the node starts as before.
            members = max(len(before.nodes) if before is not None else 1, *joined, 0)
            states.write(request.home, replace(state, nodes=state.nodes[:members], state="degraded" if others_run else "stopped"))
        raise
    ready = replace(state, state="running")
    states.write(request.home, ready)
    request.say(f"OpenSearch {ready.version} answers at {ready.url} after {time.monotonic() - began:.0f} s.")
    return ready


def _plan(request: StartRequest, before: NodeState | None) -> list[NodeProcess]:
    """The processes of the cluster with their ports. Those that run are kept, others get their old ports if free, else new ones."""
    old_processes = {each.name: each for each in before.nodes} if before is not None else {}
    free = free_ports()
    plan: list[NodeProcess] = []
    for number in range(1, request.count + 1):
        name = f"node-{number}"
        old = old_processes.get(name)
        if old is not None and old.alive:
            plan.append(old)
            continue
        if number == 1 and request.port is not None:
            if not _is_free(request.port):
                advice = "Choose another --port, or leave --port out to use any free port."
                raise TermweaveError(f"Port {request.port} is taken by another program.", advice)
            port = request.port
        else:
            port = old.port if old is not None and request.same_ports and _is_free(old.port) else next(free)
        transport = old.transport if old is not None and request.same_ports and _is_free(old.transport) else next(free)
        plan.append(NodeProcess(name, 0, port, transport, alive=False))
    return plan


def _discovery(layout: Layout, plan: list[NodeProcess]) -> list[str]:
    """Settings with which a process finds the others.

    Only node-1 may form a new cluster, and only if it has no data. So a single node can grow into a cluster with its data, and new
    processes never form a second cluster.
    """
    if len(plan) == 1:
        return ["discovery.type: single-node"]
    seeds = ", ".join(f'"{_HOST}:{each.transport}"' for each in plan)
    lines = [f"discovery.seed_hosts: [{seeds}]"]
    if layout.name == "node-1" and not (layout.data / "nodes").exists():
        lines.append('cluster.initial_cluster_manager_nodes: ["node-1"]')
    return lines


def _wait(request: StartRequest, root: Path, plan: list[NodeProcess], started: list[NodeProcess], seen: set[int]) -> None:
    """Wait until all processes form one cluster and its indices can be used.

    Args:
        request: The arguments of the start.
        root: Run folder of the node.
        plan: All processes; the first one is asked.
        started: Those of them that were started now.
        seen: Gets the numbers of processes that were one cluster.

    Raises:
        PortTakenError: A process ended because its port was taken.
        EngineUnreachable: The cluster did not become ready in time.
        TermweaveError: A process ended.
    """
    last_message = time.monotonic()
    until = last_message + request.patience
    while True:
        for child in plan:
            layout = Layout(root, child.name)
            if layout.mine(child):
                continue
            if child not in started:
                hint = f"Look at {layout.log}, and run 'termweave node start' again."
                raise TermweaveError(f"The process {child.name}, which ran before, ended while the others started.", hint)
            wrong, advice = process.cause_of_death(layout)
            if wrong == process.PORT_TAKEN:
                raise PortTakenError(f"The server ended while it started: {wrong} ({child.port} or {child.transport}).", advice)
            raise TermweaveError(f"The server ended while it started: {wrong}.", advice)
        health = _health(plan[0].port)
        joined = int(health.get("number_of_nodes", 0))
        seen.add(joined)
        if joined == request.count and health.get("status") in {"green", "yellow"}:
            return
        now = time.monotonic()
        if now > until:
            status = f"{joined} of {request.count} processes joined, status {health.get('status', 'unknown')}"
            advice = f"Look at {Layout(root, plan[0].name).log}; a busy machine needs more time."
            raise EngineUnreachable(f"The server did not become ready in {request.patience:.0f} s ({status}).", advice)
        if now - last_message > 10:
            request.say(f"Still starting: {joined} of {request.count} up." if request.count > 1 else "Still starting.")
            last_message = now
        time.sleep(0.25)


def _health(port: int) -> dict[str, Any]:
    """The response of `_cluster/health`; {} if there is none. The standard library suffices: the client takes 150 ms to import."""
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
        TermweaveError: None is left.
    """
    yield from (port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))
    raise TermweaveError(f"No port from {_PORTS[0]} to {_PORTS[-1]} is free.", "End servers that are not needed.")


def total_and_available() -> tuple[int, int]:
    """Total and available memory of this machine, or of its container where that has less.

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


def heap_size(count: int, last: int = 0) -> int:
    """The heap of one process in MB: an eighth of the memory, between 512 MB and 1 GB; 512 MB if there are several processes.

    Args:
        count: Processes that are to be started.
        last: The heap of the last start, which is kept; 0: there was none. One below 512 was chosen because there is little memory.

    Raises:
        TermweaveError: There is too little memory.
    """
    total, available = total_and_available()
    if available < count * _PROCESS and not 0 < last < _LEAST:
        needed = f"{counted(count, 'server process needs', 'server processes need')} {sized(count * _PROCESS)}"
        hint = "Close other programs, or start it with less: --heap 400."
        raise TermweaveError(f"{sized(available)} of memory are free, and {needed}.", hint)
    return last or (_LEAST if count > 1 else max(_LEAST, min(1024, total // 8 // 2**20)))
