"""Start, stop and inspect the embedded node, a real OpenSearch without Docker.

Every function takes the `home` of a node, so that tests and other programs can have their own; the default is the user's node.
The home holds the state file and the lock. Data, logs and configuration are in the same folder, or in the system's state folder if root
starts a server that cannot enter the home (`NodeState.folder` names it).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.engine.embedded import folders, process, startup
from termweave.engine.embedded import state as states
from termweave.engine.embedded.process import Layout
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.engine.embedded.state import NodeState

__all__ = ["logs", "running", "start", "status", "stop", "wipe"]

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
        request = startup.StartRequest(home=home, port=port, heap=heap, ml=ml, patience=patience, say=say)
        for _ in range(_OTHER_PORTS if port is None else 0):
            try:
                return startup.start(request, state)
            except startup.PortTakenError:
                say("Another program took the port; trying other ports.")
                request, state = replace(request, same_ports=False), status(home)
        return startup.start(request, state)


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
