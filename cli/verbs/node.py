"""`termweave node` and `demo`: manage the embedded OpenSearch; index, evaluate and search a real corpus in one command."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave import engine, evaluation, indexer, search
from termweave.cli import hit_list
from termweave.cli.declared_options import CONTEXT, IntRange, flag, option
from termweave.cli.shared_options import confirm, verb, yes_option
from termweave.engine.embedded import folders, node
from termweave.errors import UsageError
from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.engine import Engine
    from termweave.engine.embedded.state import NodeState
    from termweave.settings import Settings

NAME = "demo"
#: Queries that show what each signal adds; the corpus has judgements for them.
QUERIES = (
    "how do I run a function after a delay in another thread",
    "remove whitespace from both ends of a string",
    "compare two text files and show what changed",
)


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
    stopped = before is not None and before.state in {"running", "starting"}
    out.emit(_summary(now), "Stopped; its data are kept." if stopped else "It was not running.")


@verb("status", command)
def status(*, out: Output) -> None:
    """Show the address and state of the embedded OpenSearch.

    The exit status is 0 whether it runs or not. The states are ("running", "starting", "dead", "stopped", "none").

    \b
    Examples:
      termweave node status
      termweave node status --json
    """
    state = node.status()
    out.emit(_summary(state), _sentence(state))


@verb("logs", command)
@click.argument("name", metavar="[NODE]", type=click.Choice(["node-1"]), default="node-1")
@option("-n --lines", "Number of lines, from the end of the log.", type=IntRange(1), default=100, show_default=True)
def logs(*, lines: int, name: str, out: Output) -> None:
    """Print the end of the log of the embedded OpenSearch.

    NODE can be left out: the only process of the embedded OpenSearch is node-1.

    \b
    Examples:
      termweave node logs -n 20
    """
    text = node.logs(lines=lines)
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
    state = node.status()
    place = state.folder if state is not None else str(folders.default_home())
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
    return f"OpenSearch {state.version} is {state.state} at {state.url}, process {state.pid}"


@verb("demo", connects=True)
def demo(*, settings: Settings, out: Output) -> None:
    """Start an OpenSearch, index a real corpus, evaluate every mode, search and explain.

    The corpus is the documentation of Python's standard library, with developers' questions and graded
    judgements. If the server or the index exists already, it is used again.

    \b
    Examples:
      termweave demo
      termweave demo --url http://localhost:9200 --json
    """
    from termweave import corpora
    from termweave.evaluation import table

    began = time.monotonic()
    if settings.url is None and node.running() is None:
        out.say("Starting an OpenSearch (first time: downloading it, 180 MB) ...")
        node.start(say=out.say)
    server = engine.connect(settings)
    out.say(f"OpenSearch {server.capabilities.version} at {server.url}")
    dataset = corpora.open_dataset("demo")
    _indexed(server, settings, out)
    index = search.Index.open(server, NAME)
    with out.progress("Queries") as bar:
        experiment = evaluation.evaluate(index, dataset, progress=bar)
    answers = {query: index.search(query, k=3, rerank="rnn", explain=True) for query in QUERIES}
    data = {
        "schema": "termweave.demo/1",
        "url": server.url,
        "generation": index.generation,
        "evaluation": table.as_json(experiment),
        "searches": {query: [hit.as_dict() for hit in hits] for query, hits in answers.items()},
        "seconds": round(time.monotonic() - began, 1),
    }

    def text() -> None:
        console = out.console()
        console.print(table.table(experiment))
        for query, hits in answers.items():
            console.print(f'\n{called()} search demo "{query}" --rerank rnn --explain -k 3', style="bold")
            hit_list.show(hits, out)
        console.print(f"\n{_NEXT.replace('termweave ', f'{called()} ')}", highlight=False)

    out.emit(data, text)


_NEXT = """What to try next:
  termweave search demo "parse a date from a string" --explain
  termweave explain demo "run a function later" threading.Timer
  termweave weights "Start a thread that calls a function after the given number of seconds."
  termweave search demo "parse a date" --show-query       the requests, for applications not in Python
  termweave index YOUR_FOLDER docs                        corpus.jsonl [queries.jsonl qrels/test.tsv]
  termweave node stop                                     (termweave node wipe removes everything)"""


def called() -> str:
    """The command by which a user can run this program again: `termweave` if the shell finds it by this name, else the command as typed."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m termweave"
    installed = shutil.which("termweave")
    if program.stem != "termweave" or (installed and program.exists() and Path(installed).samefile(program)):
        return "termweave"
    return shlex.quote(sys.argv[0])


def _indexed(server: Engine, settings: Settings, out: Output) -> None:
    """Build and verify the index of the demo, unless the index is up to date."""
    from termweave import corpora
    from termweave.indexer.ledger import storage
    from termweave.indexer.ledger.unfinished_builds import UnfinishedBuild

    source = corpora.open_source("demo")
    options = indexer.BuildOptions(weights=settings.weights, dense=settings.dense)
    index = indexer.up_to_date(server, source, NAME, options)
    if index is not None:
        try:
            with storage.existing(server, index) as ledger:
                difference = indexer.verify(server, index, ledger)
        except UsageError:
            out.say(f"{index} was built on another host; building it again")
        else:
            if difference.ok:
                out.say(f"{index} exists: {difference.counted:,} documents, verified")
                return
    out.say("Indexing the documentation of Python's standard library ...")
    with out.stages("Reading") as progress:
        try:
            built = indexer.build(server, source, NAME, options, progress)
        except UnfinishedBuild:  # begun with another model; it is safe to delete, because only the demo uses this name
            built = indexer.build(server, source, NAME, replace(options, fresh=True), progress)
    out.say(*built.notes)
    out.say(f"{built.documents:,} documents indexed and verified in {built.seconds:.0f} s ({built.sent / built.seconds:.0f}/s)")
