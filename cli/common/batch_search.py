"""`termweave search --queries FILE --run OUT`: many queries to one run."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._files import writable
from termweave.cli._numbers import IntRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from termweave.cli._options import Output
    from termweave.engine import Engine
    from termweave.records import Query

#: Documents a query in a run, unless -k says otherwise: what recall@100 needs.
DEPTH = 100


def batch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--queries and what goes with it."""
    for option in (
        click.option(
            "--workers",
            type=IntRange(1, 64),
            default=4,
            show_default=True,
            help="With --queries: requests in flight at once.",
        ),
        click.option("--run-name", metavar="TEXT", help="Last column of the run.  [default: mode and reranker]"),
        click.option("--run", "run_file", metavar="OUT", help="Write the answers to --queries as a TREC run; '-' prints it."),
        click.option(
            "--queries",
            "queries_file",
            metavar="FILE",
            help="Ask all of these: 'id<TAB>text' lines, JSON lines, a BEIR folder; PATH:SPLIT: the judged ones; '-': standard input.",
        ),
    ):
        function = option(function)
    return function


def answer_all(
    server: Engine,
    name: str,
    queries_file: str,
    run_file: str,
    run_name: str | None,
    *,
    models: Mapping[str, str | None],
    mode: str | None,
    rerank: str | None,
    k: int,
    candidates: int,
    where: Sequence[Mapping[str, Any]],
    workers: int,
    out: Output,
) -> None:
    """Rank every query of a file and write the run.

    All answers come from the generation that the alias points at now. Ctrl-C leaves what is done in ``OUT.partial``; OUT
    itself appears, or is replaced, only when every query is answered.
    """
    from termweave.evaluation import runs, systems, wording
    from termweave.search import Index, batch, remarks

    run_file = "-" if run_file == "/dev/stdout" else run_file  # opened by that name, a file behind it would be cut
    if run_file == "-" and out.json:
        raise click.UsageError("--run - prints the run itself: leave --json out, or name a file.")
    writable(None, [None if run_file == "-" else Path(run_file)])
    asked = _asked(queries_file)
    index = Index.pinned(server, name, **models)
    chosen, reranking = index.choose(mode, rerank)
    title = run_name or systems.system_of(chosen.name, reranking, index).name
    began = time.monotonic()
    shortened: list[str] = []
    rewritten: set[str] = set()
    empty = 0
    options: dict[str, Any] = {"k": k, "candidates": candidates, "reranking": reranking, "where": where, "workers": workers}
    with _target(run_file, title, len(asked), out) as add, out.progress("Queries") as bar:
        ranked = batch.ranked(index, asked, chosen, **options, dropped=shortened.append)
        for number, (query, places) in enumerate(ranked, 1):
            rewritten |= runs.rewritten((query.id, *(place.id for place in places)))
            empty += not places
            add(query.id, {place.id: place.score for place in places})
            bar(number, len(asked))
    took = time.monotonic() - began
    counts = {signal: shortened.count(signal) for signal in sorted(set(shortened))}
    for signal, count in counts.items():
        has = "has" if count == 1 else "have"
        out.warn(
            f"{wording.queries(count)} {has} more terms than the server allows clauses; {signal} left out those that contribute least."
        )
    if empty:
        out.warn(f"{wording.queries(empty)} found nothing and {'has' if empty == 1 else 'have'} no line in the run.")
    for remark in remarks.on_filters(server, index.generation, where, empty=bool(empty)):
        out.warn(remark)
    if rewritten:
        out.say(runs.remark(rewritten))
    if run_file == "-":
        return
    data = {
        "schema": "termweave.batch/1",
        "run": run_file,
        "name": title,
        "generation": index.generation,
        "queries": len(asked),
        "seconds": round(took, 3),
        "shortened": counts,
        "empty": empty,
    }
    out.emit(data, f"{wording.queries(len(asked))} in {run_file} ({took:.1f} s, {len(asked) / took:.0f}/s)")


def _asked(spec: str) -> list[Query]:
    """The queries of a file or folder, or the judged ones of a data set that is named as for `evaluate`."""
    from termweave import corpora
    from termweave.corpora import queries

    _, split = corpora.path_and_split(spec)
    if spec != "-" and not corpora.exists(spec) and (split is not None or spec == "demo" or spec.startswith("ir:")):
        return corpora.open_dataset(spec).queries()
    return queries.read(spec)


@contextmanager
def _target(run_file: str, title: str, asked: int, out: Output) -> Iterator[Callable[[str, Mapping[str, float]], None]]:
    """Where answers go; what is there when the work ends early is said."""
    from termweave.evaluation import runs

    if run_file == "-":
        yield lambda query, scores: click.echo(runs.lines(query, scores, title).encode(), nl=False)  # UTF-8, as in a file
        return
    writer = runs.Writer(Path(run_file), title)
    try:
        with writer:
            yield writer.add
    except BaseException:
        if writer.queries:
            out.say(f"{writer.queries:,} of {asked:,} queries are in {writer.partial}, a valid run by itself.")
        raise
