"""From nothing to a cluster that answers: what is needed, where the processes listen, how they find each other."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.engine import artifacts, folders, java, memory, process
from termweave.engine import state as states
from termweave.engine.process import Layout
from termweave.engine.state import NodeProcess, NodeState
from termweave.errors import EngineUnreachable, TermweaveError
from termweave.words import counted, sized

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Loopback, always: the distribution has no security plugin.
_HOST = "127.0.0.1"

#: Memory of one process with 512 MB of heap (measured: 460 in a cluster, 650 alone with 1 GB).
_PROCESS = 700_000_000


class PortTakenError(TermweaveError):
    """A port that was free when it was chosen was taken when the server wanted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be started; see `node.start`."""

    home: Path
    count: int
    port: int | None
    heap: int | None
    patience: float
    say: Callable[[str], None]


def start(order: Order, known: NodeState | None) -> NodeState:
    """Start what does not live yet; the caller holds the lock.

    Args:
        order: What is wanted.
        known: The state as found: living processes stay, ports are kept where they are free.

    Raises:
        PortTakenError: A port was taken after it had been chosen.
        TermweaveError: Everything else, in a sentence; no process that was started here is left.
    """
    root = folders.run_folder(order.home)
    folders.require_space(root, folders.START_NEEDS, "a node")
    plan = _plan(order, known)
    heap = order.heap or _heap(sum(not each.alive for each in plan))
    jdk = java.find(order.say)
    distribution = artifacts.distribution(order.say)
    began = time.monotonic()
    many = f" as a cluster of {order.count} processes" if order.count > 1 else ""
    order.say(f"Starting OpenSearch {artifacts.VERSION}{many} on Java {jdk.major} (10 to {20 * order.count} s).")
    found = NodeState(plan[0].url, artifacts.VERSION, tuple(plan), "starting", str(root), str(jdk.home), heap)
    fresh: list[tuple[Layout, NodeProcess]] = []
    try:
        for place, wanted in enumerate(plan):
            if wanted.alive:
                continue
            layout = Layout(root, wanted.name)
            process.prepare(layout, distribution, wanted.port, wanted.transport, _discovery(layout, plan))
            plan[place] = process.launch(layout, distribution, jdk, heap=heap, port=wanted.port, transport=wanted.transport)
            fresh.append((layout, plan[place]))
            # Written after each, so that a start that is killed here leaves no process that nobody knows of.
            found = replace(found, nodes=tuple(plan))
            states.write(order.home, found)
        _wait(order, fresh, plan[0], began + order.patience)
    except BaseException:
        # On Ctrl-C as well: a start that was not finished leaves no process behind.
        process.end(fresh)
        if fresh:
            lived = any(each.alive for each in plan if each not in [child for _, child in fresh])
            states.write(order.home, replace(found, state="degraded" if lived else "stopped"))
        raise
    ready = replace(found, state="running")
    states.write(order.home, ready)
    order.say(f"OpenSearch {ready.version} answers at {ready.url} after {time.monotonic() - began:.0f} s.")
    return ready


def _plan(order: Order, known: NodeState | None) -> list[NodeProcess]:
    """Who is to run, and where: living processes stay, others get their old ports when these are free, else new ones."""
    before = {each.name: each for each in known.nodes} if known is not None else {}
    plan: list[NodeProcess] = []
    for number in range(1, order.count + 1):
        name = f"node-{number}"
        old = before.get(name)
        if old is not None and old.alive:
            plan.append(old)
            continue
        if number == 1 and order.port is not None:
            if not _free(order.port):
                advice = "Choose another --port, or none: then a free one is found."
                raise TermweaveError(f"Port {order.port} is taken by another program.", advice)
            port = order.port
        else:
            port = old.port if old is not None and _free(old.port) else _free_port()
        transport = old.transport if old is not None and _free(old.transport) else _free_port()
        plan.append(NodeProcess(name, 0, port, transport, alive=False))
    return plan


def _discovery(layout: Layout, plan: list[NodeProcess]) -> list[str]:
    """How a process finds the others.

    Only node-1 may found a cluster, and only when it has no data: so a node grows into a cluster with what it holds, and two
    newcomers never found a cluster of their own.
    """
    if len(plan) == 1:
        return ["discovery.type: single-node"]
    seeds = ", ".join(f'"{_HOST}:{each.transport}"' for each in plan)
    lines = [f"discovery.seed_hosts: [{seeds}]"]
    if layout.name == "node-1" and not (layout.data / "nodes").exists():
        lines.append('cluster.initial_cluster_manager_nodes: ["node-1"]')
    return lines


def _wait(order: Order, fresh: list[tuple[Layout, NodeProcess]], first: NodeProcess, until: float) -> None:
    """Wait until all processes are one cluster and its indices can be used."""
    told = time.monotonic()
    while True:
        for layout, child in fresh:
            if not layout.mine(child):
                wrong, advice = process.cause_of_death(layout)
                kind = PortTakenError if wrong == process.PORT_TAKEN else TermweaveError
                raise kind(f"The server ended while it started: {wrong}.", advice)
        health = _health(first.port)
        joined = health.get("number_of_nodes", 0)
        if joined == order.count and health.get("status") in {"green", "yellow"}:
            return
        now = time.monotonic()
        if now > until:
            seen = f"{joined} of {order.count} processes joined, status {health.get('status', 'unknown')}"
            advice = f"Look at {fresh[0][0].log if fresh else 'its log'}; a loaded machine needs longer."
            raise EngineUnreachable(f"The server did not become ready in {order.patience:.0f} s ({seen}).", advice)
        if now - told > 10:
            order.say(f"Still starting: {joined} of {order.count} up." if order.count > 1 else "Still starting.")
            told = now
        time.sleep(0.25)


def _health(port: int) -> dict[str, object]:
    """`_cluster/health` by the standard library: a start needs no client, and the client takes 150 ms to import."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", "/_cluster/health?local=true")
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return found if isinstance(found, dict) else {}


def _heap(count: int) -> int:
    """An eighth of the memory, between 512 MB and 1 GB; several processes share, and get 512 MB each."""
    total, available = memory.total_and_available()
    if available < count * _PROCESS:
        raise TermweaveError(
            f"There are {sized(available)} of memory left, and {counted(count, 'server process needs', 'server processes need')} {sized(count * _PROCESS)}.",
            "Close other programs, or insist with --heap 400.",
        )
    return 512 if count > 1 else max(512, min(1024, total // 8 // 2**20))


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: a port just given back is free
        try:
            probe.bind((_HOST, port))
        except (OSError, OverflowError):
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
