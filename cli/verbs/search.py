"""`termweave search`: the best documents for a query."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common import shaded_texts
from termweave.cli.common.batch_search import DEPTH, answer_all, batch_options
from termweave.cli.common.hit_list import show, show_facets
from termweave.cli.options.number_types import IntRange
from termweave.cli.options.option_groups import option_group, verb
from termweave.cli.options.search_options import candidate_options, rank_options, words_option
from termweave.cli.options.shared_options import check_together, connection_options, model_options, models_to_open, output_options
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from termweave.cli.common.output import Output
    from termweave.search import Index
    from termweave.search.results.hits import Answer
    from termweave.settings import Settings


@verb("search")
@click.argument("name")
@click.argument("query", required=False)
@click.option("-k", type=IntRange(1, 10_000), help="How many hits.  [default: 10; with --queries 100]")
@click.option("--from", "start", type=IntRange(0, 10_000), default=0, show_default=True, help="How many hits to skip.")
@click.option("--explain", is_flag=True, help="Show the parts of each score, and shade the words that contributed to it.")
@words_option
@click.option(
    "--like", multiple=True, metavar="ID", help="Search for documents similar to this one, with or without a QUERY; repeatable."
)
@rank_options
@candidate_options
@option_group(
    "Hits",
    click.option(
        "--highlight/--no-highlight",
        default=None,
        help="Mark the words that lexical and weights matched, and show the passage around them.  [default: yes, but not in JSON]",
    ),
    click.option(
        "--fields",
        metavar="NAMES",
        help="Stored fields of each hit, separated by commas; an entry of the metadata is named as in --filter, and '*' in a name stands for "
        "any characters ('*': all fields of the source). In a terminal, these fields are shown on a line below each hit.  [default: title,text,metadata]",
    ),
    click.option(
        "--facet",
        "facets",
        multiple=True,
        metavar="FIELD",
        help="Count the values of this metadata field among the candidates; repeatable.",
    ),
    click.option(
        "--sort",
        metavar="FIELD",
        help="Sort the candidates by this metadata field instead of by score; FIELD:desc begins with the highest value.",
    ),
    click.option("--show-query", is_flag=True, help="Print the requests instead of sending them."),
    click.option(
        "--server-fusion",
        is_flag=True,
        help="Let the server fuse the signals by min-max (needs the plugin neural-search). The lowest hit of a list counts 0, so that "
        "scores and order differ from hybrid@min-max if few documents match. Not for passages.",
    ),
)
@batch_options
@model_options
@shaded_texts.picture_options
@output_options
@connection_options
def command(
    *,
    name: str,
    query: str | None,
    mode: str | None,
    rerank: str | None,
    rerank_budget: float | None,
    like: tuple[str, ...],
    k: int | None,
    candidates: int,
    start: int,
    fields: str | None,
    filters: tuple[str, ...],
    facets: tuple[str, ...],
    sort: str | None,
    explain: bool,
    explain_words: bool,
    show_query: bool,
    highlight: bool | None,
    server_fusion: bool,
    queries_file: str | None,
    run_file: str | None,
    workers: int,
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
      termweave search docs "parse json" --show-query
      termweave search docs --queries queries.tsv --run hybrid.trec --rerank rnn
    """
    from termweave import engine
    from termweave.search import Index
    from termweave.search.options import FIELDS
    from termweave.search.results import json

    kept = where(filters)
    many = queries_file is not None
    drawn = bool(explain or explain_words or html)
    shown = drawn or bool(show_query or start or highlight or fields)
    single = shown or query is not None or bool(like or server_fusion)
    check_together(
        ("--queries goes with mode, reranker, filters and -k only; it takes no QUERY and shows nothing", many and single),
        ("--queries needs --run OUT, the file for the answers; '-' prints them", many and run_file is None),
        ("--run goes with --queries FILE", not many and run_file is not None),
        ("--facet and --sort go with one QUERY, not with --queries FILE", many and bool(facets or sort)),
        ("--show-query sends no search, so there is nothing to count or sort", show_query and bool(facets or sort)),
        ("--show-query sends no search, so there is nothing to explain or draw", show_query and drawn),
        ("--show-query does not go with --like: that query is made of what the index holds", show_query and bool(like)),
    )
    if queries_file is not None and run_file is not None:
        answer_all(
            engine.connect(settings, pool_maxsize=max(8, workers)),
            name,
            queries_file,
            run_file,
            models=models_to_open(models, settings),
            mode=mode,
            rerank=rerank,
            rerank_budget=rerank_budget,
            k=k or DEPTH,
            candidates=candidates,
            where=kept,
            workers=workers,
            out=out,
        )
        return
    text = _text(query, like)
    index = Index.open(engine.connect(settings), name, **models_to_open(models, settings))
    options: dict[str, Any] = {
        "k": k or 10,
        "candidates": candidates,
        "mode": mode,
        "rerank": rerank,
        "rerank_budget": rerank_budget,
        "start": start,
        "fields": FIELDS if fields is None else tuple(each.strip() for each in fields.split(",") if each.strip()),
        "where": kept,
        "sort": sort,
        "server_fusion": server_fusion,
    }
    if show_query:
        requests = index.requests(text, **options)
        _warn(requests[0].get("dropped", {}), out)
        out.emit(json.requests(requests), lambda: _as_console(requests))
        return
    options |= {
        "like": like,
        "facets": facets,
        "explain": explain or html is not None,
        "explain_words": explain_words,
        "highlight": not out.json if highlight is None else highlight,
    }
    _answer(index, text, options, html, out, others=fields is not None)


def _answer(index: Index, text: str, options: dict[str, Any], html: Path | None, out: Output, *, others: bool) -> None:
    """Answer one query and show the hits.

    Args:
        index: The index that is searched.
        text: The query.
        options: As `SearchOptions`.
        html: Where to write a page of the explained hits; None: nowhere.
        out: Where results and messages go.
        others: Show the fields besides title and text on a line below each hit.
    """
    from termweave.search.render import pictures
    from termweave.search.results import json

    began = time.perf_counter()
    answer = index.answer(text, **options)
    took = (time.perf_counter() - began) * 1000
    _warn(answer.dropped, out, answer.remarks)
    for cut in answer.cut_short:
        out.warn(f"{cut}.")
    if html:
        shaded_texts.write(html, text, [each for hit in answer.hits for each in pictures.of_hit(hit)], out)
    out.emit(json.search(text, answer, took), lambda: _show(answer, out, others=others, start=options["start"]))


def _show(answer: Answer, out: Output, *, others: bool, start: int) -> str | None:
    """Print the hits, and below them the counts of facets."""
    if not answer.hits:
        return "No hits on this page." if start else "Nothing found."
    show(answer.hits, out, others=others)
    if answer.facets:
        show_facets(answer.facets, out)
    return None


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


def where(filters: Sequence[str]) -> list[str | dict[str, Any]]:
    """The filters of the command line: expressions, and clauses of the query DSL, which are JSON objects."""
    return [_clause(text) if text.lstrip().startswith("{") else text for text in filters]


def _clause(text: str) -> dict[str, Any]:
    import orjson

    try:
        clause: dict[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"--filter {text!r} is not JSON: {error}.") from None
    if len(clause) != 1:
        raise click.UsageError(
            '--filter takes one clause of the query DSL, for example \'{"range": {"typed.year": {"gte": 2020}}}\'.'
        )
    return clause


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
