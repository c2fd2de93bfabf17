"""`termweave search`: the best documents for a query."""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common import shaded_texts
from termweave.cli.common.batch_search import answer_all
from termweave.cli.common.hit_list import show, show_counts
from termweave.cli.common.output_files import writable
from termweave.cli.options.declared_options import click_options
from termweave.cli.options.option_groups import option_group
from termweave.cli.options.shared_options import check_together, model_options, models_to_open, verb
from termweave.search.options import SENT, RunOptions, SearchOptions
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.cli.common.output import Output
    from termweave.search import Index
    from termweave.settings import Settings


@verb("search", connects=True)
@click.argument("name")
@click.argument("query", required=False)
@click_options(SearchOptions, "given")
@option_group("Hits", click.option("--show-query", is_flag=True, help="Print the requests instead of sending them."))
@option_group(
    "Many queries",
    click.option(
        "--queries",
        "queries_file",
        metavar="FILE",
        help="Answer all queries of a file: lines of id<TAB>text, JSON lines, or a BEIR folder; PATH:SPLIT takes the judged queries; "
        "'-' is standard input.",
    ),
    click.option("--run", "run_file", metavar="OUT", help="Write the answers to --queries as a TREC run; '-' prints it."),
)
@click_options(RunOptions, "sending", ("workers",))
@model_options
@shaded_texts.html_option
def command(
    *,
    name: str,
    query: str | None,
    given: dict[str, Any],
    show_query: bool,
    queries_file: str | None,
    run_file: str | None,
    sending: dict[str, Any],
    models: dict[str, str | None],
    html: Path | None,
    settings: Settings,
    out: Output,
) -> None:
    """Search the index NAME for QUERY, or for all queries of a file.

    A QUERY of '-' is read from standard input. With --queries the run is written to OUT when all queries are answered; Ctrl-C leaves
    the answers so far in OUT.partial.

    \b
    Examples:
      termweave search docs "how do I parse json"
      termweave search docs "parse json" --rerank rnn --explain --html why.html
      termweave search docs "parse json" --rerank hf:OWNER/NAME --rerank-budget 80ms
      termweave search docs "parse json" --mode weights:0.7,dense:0.3 -k 5 --json
      termweave search docs "parse json" --filter "year>=2020 AND NOT kind=draft" --facet kind --sort year:desc
      termweave search docs --like json.loads --rerank rnn
      termweave search docs '"json parser" fsat -xml' --rewrite operators,spelling
      termweave search docs "parse json" --show-query
      termweave search docs --queries queries.tsv --run hybrid.trec --rerank rnn --log-features features.csv
    """
    from termweave import engine
    from termweave.search import Index
    from termweave.search.results import json

    one_query = bool(given.keys() - {each.name for each in fields(RunOptions)} or query is not None or show_query or html)
    not_sent = bool(given.keys() - SENT or html)
    log = given.get("log_features")
    named = {Path(each).resolve() for each in (queries_file, run_file, html) if each}
    check_together(
        (
            "--log-features needs a file of its own: another option names this one",
            log is not None and Path(log).resolve() in named,
        ),
        (
            "--queries goes with mode, reranker, rewriting, filters, --log-features and -k only; it takes no QUERY and shows nothing",
            queries_file is not None and one_query,
        ),
        (
            "--run would replace the file of queries: name another file",
            queries_file is not None and run_file not in {None, "-"} and Path(run_file).resolve() == Path(queries_file).resolve(),
        ),
        ("--queries FILE and --run OUT belong together; '-' prints the answers", (queries_file is None) != (run_file is None)),
        (
            "--show-query sends no search: leave out --html, --explain, --like, --facet, --totals, --log-features, and what orders or leaves out hits",
            show_query and not_sent,
        ),
    )
    writable(None, [Path(log) if log else None])
    if queries_file is not None and run_file is not None:
        many = RunOptions(**given, **sending)
        server = engine.connect(settings, pool_maxsize=max(8, many.workers))
        answer_all(server, name, queries_file, run_file, many, models_to_open(models, settings), out)
        return
    text = _text(query, given.get("like", ()))
    options = SearchOptions(**{"highlight": not out.json, **given, "explain": html is not None or given.get("explain", False)})
    index = Index.open(engine.connect(settings).watched(out.say), name, **models_to_open(models, settings))
    if show_query:
        requests = index.requests(text, **vars(options))
        left_out = [f"The requests leave out {each}: termweave does that itself." for each in requests[0].get("left_out", ())]
        _warn(requests[0].get("dropped", {}), out, left_out)
        out.emit(json.requests(requests), lambda: _as_console(requests))
        return
    _answer(index, text, options, html, out, others="fields" in given)
    if options.log_features:
        out.say(f"The features of the candidates are in {options.log_features}.")


def _answer(index: Index, text: str, options: SearchOptions, html: Path | None, out: Output, *, others: bool) -> None:
    """Answer one query and show the hits.

    Args:
        index: The index that is searched.
        text: The query.
        options: What is searched.
        html: Where to write a page of the explained hits; None: nowhere.
        out: Where results and messages go.
        others: Show the fields besides title and text on a line below each hit.
    """
    from termweave.search.results import json, pictures

    began = time.perf_counter()
    answer = index.answered(text, options)
    took = (time.perf_counter() - began) * 1000
    _warn(answer.dropped, out, answer.remarks)
    for cut in answer.cut_short:
        out.warn(f"{cut}.")
    if html:
        shaded_texts.write(html, text, [each for hit in answer.hits for each in pictures.of_hit(hit)], out)

    def show_answer() -> str | None:
        if not answer.hits:
            return "No hits on this page." if options.start else "Nothing found."
        show(answer.hits, out, others=others)
        show_counts(answer, out)
        return None

    out.emit(json.search(text, answer, took), show_answer)


def _text(query: str | None, like: Sequence[str]) -> str:
    """The text to search with; documents to search with may stand alone."""
    if query is None and not like:
        raise click.UsageError("Give a QUERY, a document to search with by --like ID, or a file of queries with --queries.")
    text = from_input(query or "")
    if not like:
        check_words(text)
    return text


def from_input(query: str) -> str:
    """A query as it was given, or from standard input where it is ``-``."""
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip() if query == "-" else query


def check_words(query: str) -> None:
    """Refuse a query without a character to search with.

    Raises:
        UsageError: It is one.
    """
    if not query.strip():
        raise click.UsageError("The query is empty. Give it some words.")


def _warn(dropped: Mapping[str, Sequence[str]], out: Output, remarks: Sequence[str] = ()) -> None:
    for remark in remarks:
        out.warn(remark)
    for signal, terms in dropped.items():
        out.warn(
            f"The query has more terms than the server allows clauses; {signal} left out {len(terms):,} that contribute least: "
            f"{few(terms)}"
        )


def _as_console(requests: Sequence[dict[str, Any]]) -> str:
    """The requests as one types them into a console: method and path, then the body."""
    import orjson

    parts = []
    for request in requests:
        body = request["body"]
        lines = [
            orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY).decode()
            for line in (body if isinstance(body, list) else [body])
        ]
        parts.append("\n".join([f"{request['method']} {request['path']}", *lines]))
    return "\n\n".join(parts)
