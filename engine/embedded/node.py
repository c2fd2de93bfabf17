"""The embedded node: a genuine OpenSearch without Docker, started, stopped and looked at.

Every function takes the node's `home`, so that tests and other programs have nodes of their own; the default is the user's.
A home holds the state file and the lock; data, logs and configuration lie beside them, or, where root dropped its rights and
the server cannot enter the home, in the system's state folder (`NodeState.folder` says where).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.engine import folders, process, starting
from termweave.engine import state as states
from termweave.engine.process import Layout
from termweave.errors import UsageError
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.engine.state import NodeProcess, NodeState

__all__ = ["logs", "running", "start", "status", "stop", "wipe"]

#: Seconds. 10 to 18 are usual for one process, two loaded cores with three took 60.
_PATIENCE = 240.0


def _silent(message: str) -> None:
    del message


def start(
    *,
    nodes: int | None = None,
    port: int | None = None,
    heap: int | None = None,
    home: Path | None = None,
    say: Callable[[str], None] = _silent,
    patience: float = _PATIENCE,
) -> NodeState:
    """Start the embedded node, or say where it runs already. Data of an earlier start are kept.

    Args:
        nodes: Processes of the cluster; default: as many as the data were made with, else 1.
        port: HTTP port of the first process; default: the one of the last start when it is free, else a free one.
        heap: Most heap of a process in MB; default: an eighth of the memory, 512 to 1024.
        home: Where the node lives; default: the user's.
        say: Told what is going on, a line at a time.
        patience: Seconds to wait for the server, and for another start or stop under way.

    Raises:
        UsageError: A number that cannot be, or another than the running cluster's.
        TermweaveError: No Java, no archives, no space, a busy port, a server that dies: each in a sentence.
    """
    if nodes is not None and not 1 <= nodes <= 5:
        raise UsageError(f"A cluster of {nodes} processes cannot be started here.", "--nodes takes 1 to 5; 3 is a real cluster.")
    if heap is not None and heap < 256:
        raise UsageError(f"The server does not run with {heap} MB of heap.", "--heap takes 256 or more.")
    home = home or folders.default_home()
    with states.locked(home, purpose="start", patience=patience, say=say):
        known = status(home)
        count = nodes or (len(known.nodes) if known is not None else 1)
        if known is not None:
            _fits(known, count, port)
            if known.state == "running":
                return known
            if known.state == "dead":
                say("The node ended without being stopped (killed, or the machine went down); starting it with its data.")
            if known.state == "starting":  # we hold the lock, so whoever was starting it is gone
                process.end(_layouts(known))
                known = status(home)
        order = starting.Order(home=home, count=count, port=port, heap=heap, patience=patience, say=say)
        try:
            return starting.start(order, known)
        except starting.PortTakenError:
            if port is not None:
                raise
            say("Another program took a port meanwhile; trying others.")
            return starting.start(order, status(home))


def _fits(known: NodeState, count: int, port: int | None) -> None:
    """Refuse what cannot go with a node that runs, or with the data that are there."""
    if known.state in {"running", "degraded"}:
        if count != len(known.nodes):
            raise UsageError(
                f"A node of {counted(len(known.nodes), 'process', 'processes')} is running already.",
                "Stop it first: termweave node stop.",
            )
        if port is not None and port != known.nodes[0].port:
            raise UsageError(f"The node is running already, at {known.url}.", "Stop it first: termweave node stop.")
    # A cluster elects with a majority of those who were in it: fewer processes would wait for the others for ever.
    if count < len(known.nodes) and Path(known.folder, "data").is_dir():
        raise UsageError(
            f"The data here belong to a cluster of {len(known.nodes)} processes, which cannot run with {count}.",
            f"Start it with --nodes {len(known.nodes)}, or remove the data: termweave node wipe.",
        )


def status(home: Path | None = None) -> NodeState | None:
    """The node as it stands, its processes looked up; None where there never was one."""
    home = home or folders.default_home()
    known = states.read(home)
    if known is None:
        return None
    root = Path(known.folder)
    return known.seen(lambda each: Layout(root, each.name).mine(each))


def running(home: Path | None = None) -> NodeState | None:
    """The node when it can be talked to: at least one of its processes is up and was ready."""
    known = status(home)
    return known if known is not None and known.state in {"running", "degraded"} else None


def stop(home: Path | None = None, *, say: Callable[[str], None] = _silent, patience: float = _PATIENCE) -> NodeState | None:
    """Stop the node; its data stay. Stopping what does not run is no error.

    Returns:
        The state it was in; None where there never was a node.
    """
    home = home or folders.default_home()
    if status(home) is None:
        return None
    with states.locked(home, purpose="stop", patience=patience, say=say):
        known = status(home)
        if known is not None:
            process.end(_layouts(known))
            states.write(home, replace(known, state="stopped"))
        return known


def wipe(home: Path | None = None, *, say: Callable[[str], None] = _silent) -> int:
    """Stop the node and remove everything it stored.

    Returns:
        Bytes that were freed.
    """
    home = home or folders.default_home()
    known = stop(home, say=say)
    freed = 0
    for root in {home, Path(known.folder) if known is not None else home}:
        for name in ("data", "logs", "conf", "tmp"):
            freed += folders.size(root / name)
            shutil.rmtree(root / name, ignore_errors=True)
        if root != home:
            shutil.rmtree(root, ignore_errors=True)
    states.state_file(home).unlink(missing_ok=True)
    return freed


def logs(home: Path | None = None, *, node: str = "node-1", lines: int = 100) -> str:
    """The last lines a process logged; what it printed, where it did not get as far as logging.

    Raises:
        UsageError: There is no such process.
    """
    known = status(home)
    if known is None:
        raise UsageError("There has been no embedded node yet.", "Start one with: termweave node start.")
    if node not in {each.name for each in known.nodes}:
        raise UsageError(f"There is no process {node!r}.", f"Known: {', '.join(each.name for each in known.nodes)}.")
    layout = Layout(Path(known.folder), node)
    return process.tail(layout.log, lines) or process.tail(layout.output, lines)


def _layouts(known: NodeState) -> list[tuple[Layout, NodeProcess]]:
    return [(Layout(Path(known.folder), each.name), each) for each in known.nodes]
