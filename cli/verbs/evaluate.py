"""`termweave evaluate`: a table of modes and measures, with significance."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._files import writable
from termweave.cli._numbers import IntRange
from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.search import check_reranker, model_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.cli._options import Output
    from termweave.corpora import Dataset
    from termweave.evaluation import Experiment, System
    from termweave.search import Index
    from termweave.settings import Settings

_FILE = click.Path(dir_okay=False, path_type=Path)


def _report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the figures go besides the terminal."""
    for option in (
        click.option("--html", type=_FILE, metavar="FILE", help="Write a report with plots, one file that needs nothing else."),
        click.option(
            "--markdown",
            type=click.Path(dir_okay=False, allow_dash=True),
            metavar="FILE",
            help="Write the table as Markdown; '-' prints it.",
        ),
        click.option(
            "--per-query",
            type=_FILE,
            metavar="FILE",
            help="Write every query's values: tab-separated, or JSON lines for *.jsonl.",
        ),
        click.option(
            "--save-run",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Write every system's run as a TREC file.",
        ),
    ):
        function = option(function)
    return function


@click.command("evaluate", context_settings=CONTEXT, short_help="A table of modes and measures, with significance.")
@click.argument("name")
@click.argument("dataset")
@click.option("--mode", "chosen", multiple=True, metavar="MODE", help="A row of the table, as search takes it; repeatable.")
@click.option(
    "--rerank",
    "rerankers",
    multiple=True,
    metavar="NAME",
    callback=check_reranker,
    help="Every mode with this reranker, as search takes it (rnn@dense: the paper's similarity); repeatable.  [default: none]",
)
@click.option(
    "--baseline",
    metavar="MODE|RUN",
    help="What the others are compared with: a mode, or a saved TREC run.  [default: BM25 where it is a row, else the first row]",
)
@click.option(
    "--require", "required", multiple=True, metavar="GATE", help="Exit with 3 unless it holds: 'nDCG@10>=0.4'; repeatable."
)
@click.option(
    "--latency",
    "timed",
    type=IntRange(0),
    default=0,
    metavar="QUERIES",
    help="Time this many queries, one at a time.  [default: 0]",
)
@_report_options
@model_options
@output_options
@connection_options
def command(
    *,
    name: str,
    dataset: str,
    chosen: tuple[str, ...],
    rerankers: tuple[str, ...],
    baseline: str | None,
    required: tuple[str, ...],
    timed: int,
    save_run: Path | None,
    per_query: Path | None,
    markdown: str | None,
    html: Path | None,
    weights: str | None,
    dense: str | None,
    settings: Settings,
    out: Output,
) -> int:
    """Compare modes and rerankers on the judged queries of DATASET: by default BM25, each signal, hybrid and hybrid+rNN.

    An adopted profile ('termweave tune') is a row of its own, and what a gate without a name looks at; else that is hybrid.
    DATASET is a BEIR folder or 'demo'; PATH:SPLIT names the split (default: test). p-values come from a paired
    randomisation test against the baseline, corrected for the number of systems (Holm). Queries are encoded once and the
    engine is asked once a signal, however many rows the table has.

    \b
    Examples:
      termweave evaluate demo demo
      termweave evaluate docs ./nfcorpus:dev --save-run runs/ --per-query values.tsv
      termweave evaluate docs ./nfcorpus --mode dense --mode hybrid --rerank none --rerank rnn --baseline dense
      termweave evaluate docs ./nfcorpus --baseline runs/hybrid.trec --html report.html --latency 50
      termweave evaluate docs ./nfcorpus --require 'nDCG@10>=0.35' --require 'hybrid+rNN:MRR@10 within .01 of runs/hybrid.trec'
    """
    from termweave import corpora, engine
    from termweave.errors import GateNotMet
    from termweave.evaluation import evaluate, gates, plots, systems
    from termweave.search import Index

    if html is not None:
        plots.require()
    parsed = [gates.parse(each) for each in required]
    opened = corpora.open_dataset(dataset)
    writable(save_run, [html, per_query, None if markdown in {None, "-"} else Path(str(markdown))])
    index = Index.pinned(engine.connect(settings), name, weights=weights or settings.weights, dense=dense or settings.dense)
    rows = systems.grid(chosen, rerankers, index)
    with out.progress("Queries") as bar:
        found = evaluate(index, opened, rows, progress=bar, baseline=baseline, required=parsed)
    try:
        if timed:
            found = _timed(index, found, systems.with_baseline(rows, baseline, index)[0], timed, out)
        verdicts = [gates.check(each, found, opened) for each in parsed]
    finally:  # after the gates, which may be about runs in the same folder; whatever became of them, the runs are not lost
        _written(found, save_run, per_query, out)
    for note in found.notes:
        out.say(note)
    if html is not None:
        _report(html, found, opened, index, verdicts, out)
    told = [verdict.told(gate.text) for gate, verdict in zip(parsed, verdicts, strict=True)]
    _shown(found, told, markdown, out)
    for verdict in verdicts:
        if verdict.met:
            out.say(f"Met: {verdict.reason}.")
        else:
            click.echo(f"NOT met: {verdict.reason}.", err=True)  # why the exit status is 3: even --quiet lets it through
    return 0 if all(verdict.met for verdict in verdicts) else GateNotMet.exit_status


def _timed(index: Index, found: Experiment, rows: list[System], timed: int, out: Output) -> Experiment:
    from termweave.evaluation import latency

    texts = [found.texts[query] for query in found.queries[:timed]]
    with out.progress("Timing") as bar:
        return replace(found, latency=latency.measure(index, rows, texts, bar))


def _written(found: Experiment, save_run: Path | None, per_query: Path | None, out: Output) -> None:
    from termweave.evaluation import report, runs
    from termweave.evaluation.wording import queries
    from termweave.words import counted

    if save_run is not None:
        ours = [row.system for row in found.rows if row.mode != "run"]
        for system in ours:
            runs.write(found.runs[system], save_run / f"{system}.trec")
        out.say(f"{counted(len(ours), 'run')} in {save_run}")
        saved = (scores for system in ours for scores in found.runs[system].scores.items())
        if rewritten := runs.rewritten(each for query, documents in saved for each in (query, *documents)):
            out.say(runs.remark(rewritten))
    if per_query is not None:
        report.write_per_query(found, per_query)
        out.say(f"The values of {queries(len(found.queries))} are in {per_query}")


def _report(path: Path, found: Experiment, dataset: Dataset, index: Index, verdicts: list[Any], out: Output) -> None:
    from termweave.evaluation import page

    models = dict.fromkeys(model.name for model in index.lineage.models.values())
    about = {"index": index.generation, "OpenSearch": index.engine.capabilities.version, "models": ", ".join(models) or "none"}
    path.write_text(page.html(found, dataset, about=about, verdicts=verdicts), encoding="utf-8")
    out.say(f"The report is {path}")


def _shown(found: Experiment, told: list[dict[str, Any]], markdown: str | None, out: Output) -> None:
    from termweave.evaluation import report

    if markdown not in {None, "-"}:
        Path(str(markdown)).write_text(report.markdown(found) + "\n", encoding="utf-8")
    as_markdown = report.markdown(found) if markdown == "-" else None
    out.emit({**as_json(found), "gates": told}, as_markdown or (lambda: report.table(found)))


def as_json(experiment: Experiment) -> dict[str, Any]:
    """Rows of mode, reranker, measure, value, p, n; what holds for a whole system beside them."""
    rows = [
        {
            "system": row.system,
            "mode": row.mode,
            "reranker": row.reranker,
            "measure": name,
            "value": value,
            "p": row.p.get(name),
            "n": len(experiment.queries),
        }
        for row in experiment.rows
        for name, value in row.values.items()
    ]
    systems = [
        {
            "system": row.system,
            "wins": row.wins,
            "ties": row.ties,
            "losses": row.losses,
            "judged": row.judged,
            "latency_ms": asdict(experiment.latency[row.system]) if row.system in experiment.latency else None,
        }
        for row in experiment.rows
    ]
    return {
        "schema": "termweave.evaluate/1",
        "dataset": experiment.dataset,
        "baseline": experiment.baseline,
        "rows": rows,
        "systems": systems,
        "notes": list(experiment.notes),
    }
