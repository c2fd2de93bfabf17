"""`termweave node`: the embedded OpenSearch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._numbers import IntRange
from termweave.cli._options import CONTEXT, confirm, output_options
from termweave.words import sized

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.engine.state import NodeState


@click.group("node", context_settings=CONTEXT, short_help="The embedded OpenSearch: start, stop, status, logs, wipe.")
def command() -> None:
    """The embedded OpenSearch: a genuine server on this machine, without Docker.

    It listens on 127.0.0.1 only. What it stores survives stop and start.

    \b
    Examples:
      termweave node start
      termweave node status --json
      termweave node stop
    """


@command.command("start")
@click.option("--nodes", type=int, help="Processes of the cluster.  [default: as before, else 1]")
@click.option("--port", type=IntRange(1, 65535), help="HTTP port.  [default: as before, else a free one]")
@click.option("--heap", type=int, metavar="MB", help="Most heap of a process.  [default: an eighth of the memory, 512 to 1024]")
@output_options
def start(*, nodes: int | None, port: int | None, heap: int | None, out: Output) -> None:
    """Start the embedded OpenSearch, or say where it runs.

    The first start fetches the server (180 MB) and, where there is no JDK 21 or newer, a JDK.

    \b
    Examples:
      termweave node start
      termweave node start --port 9200 --heap 2048
      termweave node start --nodes 3
    """
    from termweave.engine import node

    state = node.start(nodes=nodes, port=port, heap=heap, say=out.say)
    out.emit(state.as_dict(), state.url)


@command.command("stop")
@output_options
def stop(*, out: Output) -> None:
    """Stop the embedded OpenSearch; what it stores stays.

    \b
    Examples:
      termweave node stop
    """
    from termweave.engine import node

    before = node.stop(say=out.say)
    now = node.status()
    did = before is not None and before.state in {"running", "degraded", "starting"}
    out.emit(_summary(now), "Stopped; its data are kept." if did else "It was not running.")


@command.command("status")
@output_options
def status(*, out: Output) -> None:
    """Say where the embedded OpenSearch runs and how it is.

    Exit status 0 whether it runs or not: `state` says it ("running", "degraded", "starting", "dead", "stopped", "none").

    \b
    Examples:
      termweave node status
      termweave node status --json
    """
    from termweave.engine import node

    state = node.status()
    out.emit(_summary(state), _sentence(state))


@command.command("logs")
@click.option("-n", "--lines", type=IntRange(1), default=100, show_default=True, help="How many of the last lines.")
@click.option("--node", "name", default="node-1", show_default=True, help="Which process.")
@click.option("-f", "--follow", is_flag=True, help="Go on until interrupted.")
@output_options
def logs(*, lines: int, name: str, follow: bool, out: Output) -> None:
    """Print what the embedded OpenSearch logged.

    \b
    Examples:
      termweave node logs -n 20
      termweave node logs --node node-2 --follow
    """
    from termweave.engine import node

    text = node.logs(node=name, lines=lines)
    out.emit({"schema": "termweave.node-logs/1", "node": name, "lines": text.splitlines()}, text)
    shown = text.splitlines()
    while follow and not out.json:
        time.sleep(0.5)
        found = node.logs(node=name, lines=1000).splitlines()
        # The log may have been rolled over: then what was shown last is no longer in it, and all is new.
        last = len(found) - found[::-1].index(shown[-1]) if shown and shown[-1] in found else 0
        if fresh := found[last:]:
            click.echo("\n".join(fresh))
            shown = found


@command.command("wipe")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def wipe(*, yes: bool, out: Output) -> None:
    """Stop the embedded OpenSearch and remove everything it stores.

    The server's archives stay; `termweave doctor` says where.

    \b
    Examples:
      termweave node wipe
      termweave node wipe --yes
    """
    from termweave.engine import folders, node

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
        return "There has been no embedded node yet. Start one with: termweave node start"
    if state.state == "stopped":
        return f"Stopped; its data are in {state.folder}."
    if state.state == "dead":
        return "It died, or was killed, without being stopped. Start it again with: termweave node start"
    lines = [f"OpenSearch {state.version} is {state.state} at {state.url}"]
    lines += [f"  {each.name}  {each.url}  process {each.pid}{'' if each.alive else '  dead'}" for each in state.nodes]
    if state.state == "degraded":
        lines.append("Start what is dead with: termweave node start")
    return "\n".join(lines)
