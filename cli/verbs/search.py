"""`termweave search`: the best documents for a query."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from termweave.cli import _pictures
from termweave.cli._batch import DEPTH, answer_all, batch_options
from termweave.cli._hits import show
from termweave.cli._numbers import IntRange
from termweave.cli._options import CONTEXT, check_together, connection_options, output_options
from termweave.words import few

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from termweave.cli._options import Output
    from termweave.search import Index
    from termweave.settings import Settings


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--weights and --dense, for hosts where the names stored with the index do not resolve."""
    function = click.option(
        "--weights",
        metavar="MODEL",
        help="Weights model, where neither the build's own folder nor the stored name has it on this host.",
    )(function)
    return click.option("--dense", metavar="MODEL", help="Dense model, likewise.")(function)


def check_reranker(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """One name, or several, that `--rerank` takes, for an option's callback.

    Raises:
        UsageError: There is no such reranker.
    """
    from termweave.search.ranking import chosen_reranking

    del ctx, param
    for name in [value] if isinstance(value, str) else value or ():
        chosen_reranking(name, None)
    return value


def rank_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--mode, --rerank and --rnn-similarity."""
    function = click.option(
        "--mode",
        help="lexical, weights, term_frequency, dense, hybrid, a weighted list (weights:0.6,dense:0.4), either with @FUSION (adaptive, min-max, "
        "z-score, rrf, sum), or a profile of tune.  [default: the profile adopted, else hybrid]",
    )(function)
    function = click.option(
        "--rnn-similarity",
        "similarity",
        type=click.Choice(["fused", "dense"]),
        help="What rnn mixes with the neighbours: the fused score, or the paper's inner product.  [default: fused]",
    )(function)
    function = click.option(
        "--rerank",
        metavar="NAME",
        callback=check_reranker,
        help="none; rnn, by reciprocal nearest neighbours; or what another package adds.  [default: as the profile says, else none]",
    )(function)

    @functools.wraps(function)
    def wrapped(*args: Any, rerank: str | None, similarity: str | None, **kwargs: Any) -> Any:
        if similarity and rerank in {None, "none"}:
            raise click.UsageError("--rnn-similarity goes with --rerank rnn.")
        return function(*args, rerank=f"{rerank}@{similarity}" if similarity else rerank, **kwargs)

    return wrapped


def candidate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--candidates, --filter and --filter-json: which documents take part."""
    for option in (
        click.option("--filter-json", metavar="JSON", help="A filter of the query DSL."),
        click.option(
            "--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="Only documents whose metadata say so; repeatable."
        ),
        click.option(
            "--candidates",
            type=IntRange(1, 10_000),
            default=100,
            show_default=True,
            help="How many each signal gives; fused scores depend on it. Pages behind them are searched for further.",
        ),
    ):
        function = option(function)
    return function


@click.command("search", context_settings=CONTEXT, short_help="The best documents for a query.")
@click.argument("name")
@click.argument("query", required=False)
@rank_options
@click.option("--like", multiple=True, metavar="ID", help="More documents like this one, with or without a QUERY; repeatable.")
@click.option("-k", type=IntRange(1, 10_000), help="How many hits.  [default: 10; with --queries 100]")
@candidate_options
@click.option("--from", "start", type=IntRange(0, 10_000), default=0, show_default=True, help="How many to skip.")
@click.option(
    "--fields",
    metavar="NAMES",
    help="Stored fields to bring along, with commas; metadata.NAME is one entry of the metadata. Text output shows those named on a "
    "line below.  [default: title,text,metadata]",
)
@click.option("--explain", is_flag=True, help="Say how each score comes about, and shade the words that gave it.")
@click.option("--show-query", is_flag=True, help="Print the requests instead of sending them.")
@click.option(
    "--highlight/--no-highlight",
    default=None,
    help="Mark where lexical and weights matched, and show that passage.  [default: yes, but not in JSON]",
)
@click.option(
    "--two-phase", is_flag=True, help="Heavy query terms retrieve, light ones rescore; may lose documents. Not for passages."
)
@click.option(
    "--server-fusion",
    is_flag=True,
    help="Let the server fuse the signals, by min-max (plugin neural-search). It takes the lowest hit of a list for 0, so where few "
    "documents match, scores and order are not those of hybrid@min-max without it. Not for passages.",
)
@batch_options
@model_options
@_pictures.picture_options
@output_options
@connection_options
def command(
    *,
    name: str,
    query: str | None,
    mode: str | None,
    rerank: str | None,
    like: tuple[str, ...],
    k: int | None,
    candidates: int,
    start: int,
    fields: str | None,
    filters: tuple[str, ...],
    filter_json: str | None,
    explain: bool,
    show_query: bool,
    highlight: bool | None,
    two_phase: bool,
    server_fusion: bool,
    queries_file: str | None,
    run_file: str | None,
    run_name: str | None,
    workers: int,
    weights: str | None,
    dense: str | None,
    files: dict[str, Path],
    settings: Settings,
    out: Output,
) -> None:
    """Search NAME for QUERY ('-' reads it from standard input), or for all queries of a file.

    With --queries the answers are written to OUT when all are there; Ctrl-C leaves what is done in OUT.partial.

    \b
    Examples:
      termweave search docs "how do I parse json"
      termweave search docs "parse json" --rerank rnn --explain --html why.html
      termweave search docs "parse json" --mode weights:0.7,dense:0.3 -k 5 --json
      termweave search docs "parse json" --filter kind=function
      termweave search docs --like json.loads --rerank rnn
      termweave search docs "parse json" --show-query
      termweave search docs --queries queries.tsv --run hybrid.trec --rerank rnn
    """
    from termweave import engine
    from termweave.search import Index
    from termweave.search.index import FIELDS

    kept = where(filters, filter_json)
    models = {"weights": weights or settings.weights, "dense": dense or settings.dense}
    many = queries_file is not None
    drawn = bool(explain or files)
    shown = drawn or bool(show_query or start or highlight or fields)
    single = shown or query is not None or bool(like or two_phase or server_fusion)
    check_together(
        ("--queries goes with mode, reranker, filters and -k only; it takes no QUERY and shows nothing", many and single),
        ("--queries needs --run OUT, the file for the answers; '-' prints them", many and run_file is None),
        ("--run and --run-name go with --queries FILE", not many and bool(run_file is not None or run_name is not None)),
        ("--show-query sends nothing that could be explained or drawn", show_query and drawn),
        ("--show-query does not go with --like: that query is made of what the index holds", show_query and bool(like)),
    )
    if queries_file is not None and run_file is not None:
        answer_all(
            engine.connect(settings, pool_maxsize=max(8, workers)),
            name,
            queries_file,
            run_file,
            run_name,
            models=models,
            mode=mode,
            rerank=rerank,
            k=k or DEPTH,
            candidates=candidates,
            where=kept,
            workers=workers,
            out=out,
        )
        return
    text = _text(query, like)
    index = Index.open(engine.connect(settings), name, **models)
    options: dict[str, Any] = {
        "k": k or 10,
        "candidates": candidates,
        "mode": mode,
        "rerank": rerank,
        "start": start,
        "fields": FIELDS if fields is None else tuple(each.strip() for each in fields.split(",") if each.strip()),
        "where": kept,
        "two_phase": two_phase,
        "server_fusion": server_fusion,
    }
    if show_query:
        requests = index.requests(text, **options)
        _warn(requests[0].get("dropped", {}), out)
        out.emit({"schema": "termweave.requests/1", "requests": requests}, lambda: _as_console(requests))
        return
    options |= {"like": like, "explain": explain or bool(files), "highlight": not out.json if highlight is None else highlight}
    _answer(index, text, options, files, out, others=fields is not None)


def _answer(index: Index, text: str, options: dict[str, Any], files: dict[str, Path], out: Output, *, others: bool) -> None:
    """Answer one query; `others`: fields were asked for, which stand on a line below each hit."""
    began = time.perf_counter()
    answer = index.answer(text, **options)
    took = (time.perf_counter() - began) * 1000
    _warn(answer.dropped, out, answer.remarks)
    data = {
        "schema": "termweave.search/1",
        "query": text,
        "took_ms": round(took, 3),
        "hits": [hit.as_dict() for hit in answer.hits],
    }
    if answer.dropped:
        data["dropped"] = {signal: list(terms) for signal, terms in answer.dropped.items()}
    if files:
        _pictures.write(files, text, [_pictures.of_hit(hit) for hit in answer.hits], out)
    out.emit(data, lambda: show(answer.hits, out, others=others) if answer.hits else "Nothing found.")


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


def where(pairs: Sequence[str], as_text: str | None) -> list[dict[str, Any]]:
    """What --filter and --filter-json say, as clauses."""
    import orjson

    found: list[dict[str, Any]] = []
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not field.removeprefix("metadata.") or not equals:
            raise click.UsageError(f"--filter {pair!r} is not FIELD=VALUE, for example --filter kind=function.")
        found.append({"term": {field if field == "id" else f"metadata.{field.removeprefix('metadata.')}": value}})
    if as_text is not None:
        try:
            clause = orjson.loads(as_text)
        except orjson.JSONDecodeError as error:
            raise click.UsageError(f"--filter-json is not JSON: {error}.") from None
        if not isinstance(clause, dict) or len(clause) != 1:
            raise click.UsageError(
                '--filter-json takes one query clause, for example \'{"range": {"metadata.year": {"gte": "2020"}}}\'.'
            )
        found.append(clause)
    return found


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
