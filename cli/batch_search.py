"""`termweave search --queries FILE --run OUT`: answer many queries and write the ranked documents of all into one run file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from termweave import corpora
from termweave.cli.shared_options import writable
from termweave.corpora.judgements import read_queries
from termweave.evaluation import measures, runs, systems
from termweave.rerank.rerankers import budgets_remark
from termweave.search import Index, batch, self_matches
from termweave.search.filters.filter_option import on_filters
from termweave.search.results import json, notices

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.engine import Engine
    from termweave.records import Query
    from termweave.search.batch import BatchReport
    from termweave.search.options import RunOptions

#: Queries that were not searched and are named.
_REFUSED = 3


def answer_all(
    server: Engine,
    name: str,
    queries_file: str,
    run_file: str,
    options: RunOptions,
    models: Mapping[str, str | None],
    out: Output,
) -> None:
    """Search for every query of a file and write the ranked documents into a run file.

    All answers come from the generation that the alias points at when the command starts. Ctrl-C leaves the finished queries in
    ``OUT.partial``; OUT itself is written or replaced only when every query is answered.
    """
    run_file = "-" if run_file == "/dev/stdout" else run_file  # opening the device would truncate a file that it is redirected to
    if run_file == "-" and out.json:
        raise click.UsageError("'--run -' prints the run, so --json cannot print its result. Leave --json out, or name a file.")
    writable(None, [None if run_file == "-" else Path(run_file)])
    queries = _queries(queries_file)
    index = Index.pinned(server, name, **models)
    chosen, reranking = index.choose(options.mode, options.rerank, options.rerank_budget)
    title = systems.system_of(chosen.name, reranking, index).name
    began = time.monotonic()
    report = batch.BatchReport()
    rewritten: set[str] = set()
    empty = 0
    with _target(run_file, title, len(queries), out) as add, out.progress("Queries") as bar:
        ranked = batch.ranked(index, queries, options, report)
        for number, (query, places) in enumerate(ranked, 1):
            rewritten |= runs.percent_encoded((query.id, *(place.id for place in places)))
            empty += not places
            add(query.id, {place.id: place.score for place in places})
            bar(number, len(queries))
    seconds = time.monotonic() - began
    counts = _warn(report, out)
    if empty:
        out.warn(f"{measures.queries(empty)} found nothing and {'has' if empty == 1 else 'have'} no line in the run.")
    if lag := notices.enrichment_lag(index.open_generation):
        lag.check_empty(len(queries) - empty)
        out.warn(str(lag))
    out.warn(*on_filters(index.open_generation, options.where, empty=bool(empty)))
    out.say(*(f"{remark} Under another id it would." for remark in self_matches.remarks(report.self_matching)))
    if rewritten:
        out.say(runs.encoding_remark(rewritten))
    if options.log_features:
        out.say(f"The features of the candidates are in {options.log_features}.")
    if run_file == "-":
        return
    summary = json.BatchSummary(run_file, title, index.generation, len(queries), seconds, counts, empty)
    line = f"{measures.queries(len(queries))} in {run_file} ({seconds:.1f} s, {len(queries) / seconds:.0f}/s)"
    out.emit(json.batch(summary), line)


def _warn(report: BatchReport, out: Output) -> dict[str, int]:
    """Warn of queries that were shortened, partly reranked, or not searched; return signal -> number of queries that this signal shortened."""
    counts = {signal: report.dropped.count(signal) for signal in sorted(set(report.dropped))}
    for signal, count in counts.items():
        has = "has" if count == 1 else "have"
        limit = f"{measures.queries(count)} {has} more terms than the server allows clauses"
        out.warn(f"{limit}; the signal {signal} left out the terms that contribute least.")
    if report.cut_short:
        out.warn(budgets_remark(report.cut_short))
    for query_id, refusal in islice(report.refused.items(), _REFUSED):
        out.warn(f"Query {query_id!r} was not searched. {refusal.message} {refusal.hint}")
    if (more := len(report.refused) - _REFUSED) > 0:
        out.warn(f"{measures.queries(more, 'more')} {'was' if more == 1 else 'were'} not searched.")
    return counts


def _queries(spec: str) -> list[Query]:
    """Read the queries of a file or folder, or the judged queries of a data set with a name such as `evaluate` takes."""
    _, split = corpora.path_and_split(spec)
    if spec != "-" and not corpora.exists(spec) and (split is not None or spec == "demo" or spec.startswith("ir:")):
        return corpora.open_dataset(spec).queries()
    return read_queries(spec)


@contextmanager
def _target(run_file: str, title: str, count: int, out: Output) -> Iterator[Callable[[str, Mapping[str, float]], None]]:
    """Yield the function that writes the answer to one query; if the work ends early, tell the user which file has the finished queries."""
    if run_file == "-":
        yield lambda query, scores: click.echo(runs.lines(query, scores, title).encode(), nl=False)  # UTF-8, as in a file
        return
    writer = runs.Writer(Path(run_file), title)
    try:
        with writer:
            yield writer.add
    except BaseException:
        if writer.queries:
            out.say(f"{writer.queries:,} of {count:,} queries are in {writer.partial}, which is a valid run.")
        raise
