"""`termweave node`: the embedded OpenSearch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli.declared_options import CONTEXT, IntRange, flag, option
from termweave.cli.shared_options import confirm, verb, yes_option
from termweave.engine.embedded import folders, node
from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.engine.embedded.state import NodeState


@click.group("node", context_settings=CONTEXT)
def command() -> None:
    """The embedded OpenSearch: a real server on this machine, without Docker.

    It listens on 127.0.0.1 only. Its data are kept when it is stopped.

    \b
    Examples:
      termweave node start
      termweave node status --json
      termweave node stop
    """


@verb("start", command)
@option("--port", "HTTP port.  [default: as before, else a free one]", type=IntRange(1, 65535))
@option("--heap", "Maximum heap of a process.  [default: as before, else an eighth of the memory, 512 to 1024]", "MB", type=int)
@flag("--ml", "Add the plugin ml-commons, which 'termweave connect' needs (390 MB). Later starts keep it.")
def start(*, port: int | None, heap: int | None, ml: bool, out: Output) -> None:
    """Start the embedded OpenSearch, or print its address if it runs.

    The first start downloads the server (180 MB) and, if there is no JDK 21 or newer, a JDK.

    \b
    Examples:
      termweave node start
      termweave node start --port 9200 --heap 2048
      termweave node start --ml
    """
    state = node.start(port=port, heap=heap, ml=ml, say=out.say)
    out.emit(state.as_dict(), state.url)


@verb("stop", command)
def stop(*, out: Output) -> None:
    """Stop the embedded OpenSearch and keep its data.

    \b
    Examples:
      termweave node stop
    """
    before = node.stop(say=out.say)
    now = node.status()
    stopped = before is not None and before.state in {"running", "degraded", "starting"}
    out.emit(_summary(now), "Stopped; its data are kept." if stopped else "It was not running.")


@verb("status", command)
def status(*, out: Output) -> None:
    """Show the address and state of the embedded OpenSearch.

    The exit status is 0 whether it runs or not. The states are ("running", "degraded", "starting", "dead", "stopped", "none").

    \b
    Examples:
      termweave node status
      termweave node status --json
    """
    state = node.status()
    out.emit(_summary(state), _sentence(state))


@verb("logs", command)
@click.argument("name", metavar="[NODE]", default="node-1")
@option("-n --lines", "Number of lines, from the end of the log.", type=IntRange(1), default=100, show_default=True)
def logs(*, lines: int, name: str, out: Output) -> None:
    """Print the end of the log of the embedded OpenSearch: of its process node-1, or of NODE.

    \b
    Examples:
      termweave node logs -n 20
      termweave node logs node-2
    """
    text = node.logs(node=name, lines=lines)
    out.emit({"schema": "termweave.node-logs/1", "node": name, "lines": text.splitlines()}, text)


@verb("wipe", command)
@yes_option
def wipe(*, yes: bool, out: Output) -> None:
    """Stop the embedded OpenSearch and remove its data.

    The archives of the server are kept; `termweave doctor` shows where.

    \b
    Examples:
      termweave node wipe
      termweave node wipe --yes
    """
    known = node.status()
    place = known.folder if known is not None else str(folders.default_home())
    if not yes:
        confirm(f"Remove every index of the embedded node in {place}?")
    freed = node.wipe(say=out.say)
    out.emit({"schema": "termweave.node-wipe/1", "folder": place, "bytes": freed}, f"Removed {sized(freed)} from {place}.")


def _summary(state: NodeState | None) -> dict[str, Any]:
    if state is None:
        return {"schema": "termweave.node/1", "url": None, "version": None, "nodes": [], "state": "none"}
    return state.as_dict()


def _sentence(state: NodeState | None) -> str:
    if state is None:
        return "The embedded node was never started. Start it with: termweave node start"
    if state.state == "stopped":
        return f"Stopped; its data are in {state.folder}."
    if state.state == "dead":
        return "It ended without being stopped. Start it again with: termweave node start"
    lines = [f"OpenSearch {state.version} is {state.state} at {state.url}"]
    lines += [f"  {each.name}  {each.url}  process {each.pid}{'' if each.alive else '  dead'}" for each in state.nodes]
    if state.state == "degraded":
        lines.append("Start the dead processes with: termweave node start")
    return "\n".join(lines)
