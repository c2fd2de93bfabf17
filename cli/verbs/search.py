"""`termweave search`, `explain` and `weights`: find the best documents for a query, explain a score, and show which words of a text matter."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from termweave import answers, encoders, engine, search
from termweave.cli import hit_list
from termweave.cli.declared_options import click_options, flag, option, option_group
from termweave.cli.shared_options import check_together, model_options, verb, writable
from termweave.search.options import SENT, ExplainOptions, RunOptions, SearchOptions
from termweave.search.results import explanation, json, pictures
from termweave.search.results.pictures import Picture
from termweave.support.messages import clipped, few, printable

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.search import Index
    from termweave.settings import Settings


@verb("search", connects=True)
@click.argument("name")
@click.argument("query", required=False)
@click_options(SearchOptions, "stated")
@option_group("Hits", flag("--show-query", "Print the requests instead of sending them."))
@option_group(
    "Many queries",
    option(
        "--queries queries_file",
        "Answer all queries of a file: lines of id<TAB>text, JSON lines, or a BEIR folder; PATH:SPLIT takes the judged queries; "
        "'-' is standard input.",
        "FILE",
    ),
    option("--run run_file", "Write the answers to --queries as a TREC run; '-' prints it.", "OUT"),
)
@click_options(RunOptions, "sending", ("workers",))
@model_options
@hit_list.html_option
def command(
    *,
    name: str,
    query: str | None,
    stated: dict[str, Any],
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
    one_query = bool(stated.keys() - {each.name for each in fields(RunOptions)} or query is not None or show_query or html)
    not_sent = bool(stated.keys() - SENT or html)
    log = stated.get("log_features")
    others = {Path(each).resolve() for each in (queries_file, run_file, html) if each}
    same_log = log is not None and Path(log).resolve() in others
    writes_file = queries_file is not None and run_file not in {None, "-"}
    same_file = writes_file and Path(run_file or "").resolve() == Path(queries_file or "").resolve()
    check_together(
        ("--log-features needs a file of its own: another option names this one", same_log),
        (
            "--queries goes with mode, reranker, rewriting, filters, --log-features and -k only; it takes no QUERY and shows nothing",
            queries_file is not None and one_query,
        ),
        ("--run would replace the file of queries: name another file", same_file),
        ("--queries FILE and --run OUT belong together; '-' prints the answers", (queries_file is None) != (run_file is None)),
        (
            "--show-query sends no search: leave out --html, --explain, --like, --facet, --totals, --log-features, and what orders or leaves out hits",
            show_query and not_sent,
        ),
    )
    writable(None, [Path(log) if log else None])
    if queries_file is not None and run_file is not None:
        from termweave.cli.batch_search import answer_all

        many = RunOptions(**stated, **sending)
        server = engine.connect(settings, pool_maxsize=max(8, many.workers))
        answer_all(server, name, queries_file, run_file, many, models, out)
        return
    text = _text(query, stated.get("like", ()))
    options = SearchOptions(**{"highlight": not out.json, **stated, "explain": html is not None or stated.get("explain", False)})
    index = search.Index.open(engine.connect(settings).watched(out.say), name, **models)
    if show_query:
        requests = index.requests(text, **vars(options))
        left_out = [f"The requests leave out {each}: termweave does that itself." for each in requests[0].get("left_out", ())]
        _warn(requests[0].get("dropped", {}), out, left_out)
        out.emit(json.requests(requests), lambda: _as_console(requests))
        return
    _answer(index, text, options, html, out, others="fields" in stated)
    if options.log_features:
        out.say(f"The features of the candidates are in {options.log_features}.")


def _answer(index: Index, text: str, options: SearchOptions, html: Path | None, out: Output, *, others: bool) -> None:
    """Search for one query and print the hits.

    Args:
        index: The index that is searched.
        text: The query.
        options: The options of the search.
        html: File for an HTML page of the explained hits; None: no page is written.
        out: Where results and messages are printed.
        others: Whether fields besides title and text are shown, on a line below each hit.
    """
    began = time.perf_counter()
    answer = index.answered(text, options)
    took = (time.perf_counter() - began) * 1000
    _warn(answer.dropped, out, (*answer.remarks, *(f"{cut}." for cut in answer.cut_short)))
    if html:
        hit_list.write(html, text, [each for hit in answer.hits for each in pictures.of_hit(hit)], out)

    def show_answer() -> str | None:
        if not answer.hits:
            return "No hits on this page." if options.start else "Nothing found."
        hit_list.show(answer.hits, out, others=others, lines=answer.lines)
        return None

    out.emit(json.search(text, answer, took), show_answer)


def _text(query: str | None, like: Sequence[str] = ()) -> str:
    """The text of the query, read from standard input if `query` is ``-``; "" if only documents (`like`) are given to search with."""
    if query is None and not like:
        raise click.UsageError("Give a QUERY, a document to search with by --like ID, or a file of queries with --queries.")
    text = sys.stdin.buffer.read().decode("utf-8", "replace").strip() if query == "-" else query or ""
    if not (text.strip() or like):
        raise click.UsageError("The query is empty. Give it some words.")
    return text


def _warn(dropped: Mapping[str, Sequence[str]], out: Output, remarks: Sequence[str] = ()) -> None:
    out.warn(*remarks)
    for signal, terms in dropped.items():
        left_out = f"the signal {signal} left out {len(terms):,} that contribute least: {few(terms)}"
        out.warn(f"The query has more terms than the server allows clauses; {left_out}")


def _as_console(requests: Sequence[dict[str, Any]]) -> str:
    """Format requests as the console of OpenSearch Dashboards takes them: method and path, then the body."""
    import orjson

    parts = []
    for request in requests:
        body = request["body"]
        bodies = body if isinstance(body, list) else [body]
        lines = [orjson.dumps(each, option=orjson.OPT_SERIALIZE_NUMPY).decode() for each in bodies]
        parts.append("\n".join([f"{request['method']} {request['path']}", *lines]))
    return "\n\n".join(parts)


@verb("explain", connects=True)
@click.argument("name")
@click.argument("query")
@click.argument("document", metavar="ID")
@click_options(ExplainOptions, "stated")
@model_options
@hit_list.html_option
def explain(
    *,
    name: str,
    query: str,
    document: str,
    stated: dict[str, Any],
    models: dict[str, str | None],
    html: Path | None,
    settings: Settings,
    out: Output,
) -> None:
    """Show which words and which signals gave the document ID its score for QUERY in the index NAME.

    A QUERY of '-' is read from standard input. Give the same --candidates and --filter as in the search: the score depends on them.

    In a terminal the words of the passage are shaded by their contribution. --html writes the same to a web page.

    \b
    Examples:
      termweave explain demo "run a function later" threading.Timer
      termweave explain demo "run a function later" sched.scheduler --rerank rnn --json
      termweave explain demo "run a function later" threading.Timer --html why.html
    """
    from termweave.search.results import notices

    query = _text(query)
    index = search.Index.open(engine.connect(settings), name, **models)
    hit = index.explain(query, document, **stated)
    if html:
        hit_list.write(html, query, pictures.of_hit(hit), out)

    def show() -> None:
        console = out.console()
        console.print(printable(f"{hit.fields.get('title') or hit.id}: {explanation.place(hit)}"))
        console.print(hit_list.passage(hit))
        console.print(explanation.as_text(hit.explanation or {"score": 0.0, "parts": []}, terms=20))

    out.emit(json.explain(query, hit), show)
    if lag := notices.enrichment_lag(index.open_generation, [document]):
        out.warn(str(lag))


@verb("weights")
@click.argument("text")
@option(
    "--weights model", "Folder, installed package, name or hf:OWNER/NAME of a weights model.  [default: the shipped one]", "MODEL"
)
@option(
    "--kind",
    "Weigh as a document (impacts) or as a query (factors).",
    type=click.Choice(["document", "query"]),
    default="document",
    show_default=True,
)
@hit_list.html_option
def weights(*, text: str, model: str | None, kind: Literal["document", "query"], html: Path | None, out: Output) -> None:
    """Show which words of TEXT matter ('-' reads it from standard input).

    In a terminal every word is shaded by its weight; otherwise the terms are listed, heaviest first. Document frequencies come from
    the table in the model folder.

    \b
    Examples:
      termweave weights "The mitochondrion is the powerhouse of the cell."
      termweave weights "what is the powerhouse of the cell" --kind query
      cat report.txt | termweave weights - --json
      termweave weights "some text" --weights path/to/model --html weights.html
    """
    from termweave import settings

    if text == "-":
        typed = sys.stdin.buffer.read()
        text = typed.decode("utf-8", "replace")
        if text.encode() != typed:
            out.warn("Standard input holds bytes that are not UTF-8; these bytes are ignored.")
    encoder = encoders.load(weights=model or settings.load().weights, dense="")
    words = encoder.shade(text, kind=kind)
    terms = {word.term: word.weight for word in words if word.term}
    terms = dict(sorted(terms.items(), key=lambda pair: (-pair[1], pair[0])))
    name, shown = encoder.models["weights"].name, hit_list.weighted_words(text, words)
    data: answers.Weights = {"schema": "termweave.weights/1", "model": name, "kind": kind, "words": shown, "terms": terms}
    if not terms:
        out.say("This text has no terms: it is empty, or has only stop words, punctuation and words longer than 200 characters.")
    if html:
        spans = [(word.start, word.end, word.weight) for word in words]
        picture = Picture(name, text, spans, note=f"weighed as a {kind}")
        hit_list.write(html, f"Weights: {clipped(text, 60)}", [picture], out)
    if sys.stdout.isatty():
        out.emit(data, lambda: hit_list.weighed(text, words))
    else:
        out.emit(data, "\n".join(f"{weight:10.4f}  {term}" for term, weight in terms.items()))
