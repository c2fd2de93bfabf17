"""`termweave demo`: index, evaluate and search a real corpus on a real OpenSearch, in one command."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.cli.shared_options import verb

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.engine import Engine
    from termweave.settings import Settings

NAME = "demo"
#: Queries that show what each signal adds; the corpus has judgements for them.
QUERIES = (
    "how do I run a function after a delay in another thread",
    "remove whitespace from both ends of a string",
    "compare two text files and show what changed",
)


@verb("demo", connects=True)
def command(*, settings: Settings, out: Output) -> None:
    """Start an OpenSearch, index a real corpus, evaluate every mode, search and explain.

    The corpus is the documentation of Python's standard library, with developers' questions and graded
    judgements. If the server or the index exists already, it is used again.

    \b
    Examples:
      termweave demo
      termweave demo --url http://localhost:9200 --json
    """
    from termweave import corpora
    from termweave.cli import hit_list
    from termweave.evaluation import evaluate
    from termweave.evaluation import table as report
    from termweave.search import Index

    began = time.monotonic()
    server = _server(settings, out)
    dataset = corpora.open_dataset("demo")
    _indexed(server, settings, out)
    index = Index.open(server, NAME)
    with out.progress("Queries") as bar:
        evaluation = evaluate(index, dataset, progress=bar)
    answers = {query: index.search(query, k=3, rerank="rnn", explain=True) for query in QUERIES}
    data = {
        "schema": "termweave.demo/1",
        "url": server.url,
        "generation": index.generation,
        "evaluation": report.as_json(evaluation),
        "searches": {query: [hit.as_dict() for hit in hits] for query, hits in answers.items()},
        "seconds": round(time.monotonic() - began, 1),
    }

    def text() -> None:
        console = out.console()
        console.print(report.table(evaluation))
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
    """The command that runs this program: `termweave` if the shell finds it by that name, else the command that was typed."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m termweave"
    installed = shutil.which("termweave")
    if program.stem != "termweave" or (installed and program.exists() and Path(installed).samefile(program)):
        return "termweave"
    return shlex.quote(sys.argv[0])


def _server(settings: Settings, out: Output) -> Engine:
    """The OpenSearch of the settings, else the running embedded node, else a newly started one."""
    from termweave import engine
    from termweave.engine.embedded import node

    if settings.url is None and node.running() is None:
        out.say("Starting an OpenSearch (first time: downloading it, 180 MB) ...")
        node.start(say=out.say)
    server = engine.connect(settings)
    out.say(f"OpenSearch {server.capabilities.version} at {server.url}")
    return server


def _indexed(server: Engine, settings: Settings, out: Output) -> None:
    """Build and verify the index, unless it is up to date."""
    from termweave import corpora
    from termweave.errors import UsageError
    from termweave.indexer import BuildOptions, build, up_to_date, verify
    from termweave.indexer.ledger import storage
    from termweave.indexer.ledger.unfinished_builds import UnfinishedBuild

    source = corpora.open_source("demo")
    options = BuildOptions(weights=settings.weights, dense=settings.dense)
    index = up_to_date(server, source, NAME, options)
    if index is not None:
        try:
            with storage.existing(server, index) as ledger:
                difference = verify(server, index, ledger)
        except UsageError:
            out.say(f"{index} was built on another host; building it again")
        else:
            if difference.ok:
                out.say(f"{index} exists: {difference.counted:,} documents, verified")
                return
    out.say("Indexing the documentation of Python's standard library ...")
    with out.stages("Reading") as progress:
        try:
            built = build(server, source, NAME, options, progress)
        except UnfinishedBuild:  # begun with another model; it is safe to delete, because only the demo uses this name
            built = build(server, source, NAME, replace(options, fresh=True), progress)
    out.say(*built.notes)
    out.say(f"{built.documents:,} documents indexed and verified in {built.seconds:.0f} s ({built.sent / built.seconds:.0f}/s)")
