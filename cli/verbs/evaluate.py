"""`termweave evaluate`: print a table that compares search modes by several measures, with significance tests."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave import corpora, engine, search
from termweave.cli.declared_options import FOLDER, NEW_FILE, IntRange, option, option_group
from termweave.cli.shared_options import check_rerankers, check_together, model_options, verb, writable
from termweave.errors import GateNotMet
from termweave.evaluation import evaluate, gates, html_page, runs, systems, table
from termweave.evaluation.index_comparison import evaluate_against
from termweave.learning.report import cost
from termweave.support import private_files
from termweave.support.messages import counted, printable, sized

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.corpora import Dataset
    from termweave.evaluation import Experiment
    from termweave.search import Index
    from termweave.settings import Settings


@verb("evaluate", connects=True, long=True)
@click.argument("name")
@click.argument("dataset")
@option("--mode chosen", "A mode to compare, as in 'termweave search'; repeatable.", "MODE", multiple=True)
@option(
    "--rerank rerankers",
    "Combine every mode with this reranker, as in 'termweave search' (rnn@dense: the similarity of the paper; "
    "ranker@FOLDER: a cross-encoder); repeatable.  "
    "[default: none]",
    "NAME",
    multiple=True,
    callback=check_rerankers,
)
@option(
    "--baseline",
    "Compare the others with this mode or saved TREC run.  [default: BM25 if it is in the table, else the first system]",
    "MODE|RUN",
)
@option(
    "--against", "Compare with the default search of another index that holds the same documents, and say which to take.", "INDEX"
)
@option("--require required", "Exit with status 3 unless this holds: 'nDCG@10>=0.4'; repeatable.", "GATE", multiple=True)
@option("--latency timed", "Time this many queries, one at a time.  [default: 0]", "QUERIES", type=IntRange(0), default=0)
@option_group(
    "Files",
    option(
        "--save folder",
        "Write SYSTEM.trec for the run of every system, values.tsv with the values of every query, and table.md.",
        "DIR",
        type=FOLDER,
    ),
    option("--html", "Write a self-contained page with the table and plots.", "FILE", type=NEW_FILE),
)
@model_options
def command(
    *,
    name: str,
    dataset: str,
    chosen: tuple[str, ...],
    rerankers: tuple[str, ...],
    baseline: str | None,
    against: str | None,
    required: tuple[str, ...],
    timed: int,
    folder: Path | None,
    html: Path | None,
    models: dict[str, str | None],
    settings: Settings,
    out: Output,
) -> int:
    """Compare modes and rerankers on the judged queries of DATASET: by default BM25, each signal, hybrid and hybrid+rNN.

    An adopted profile ('termweave tune') is one more system, and gates without a name are about it; without a profile they are
    about hybrid. DATASET is a BEIR folder, 'demo', the book of an index ('book:NAME', see 'termweave serve'), a log of user
    behaviour (ubi:FOLDER, ubi:opensearch), or a click log with lines of query, document id and count; PATH:SPLIT names the split
    (default: test). p-values come from a paired randomisation test against the baseline, corrected for the number of systems (Holm).
    With --against the default searches of two indices are compared.
    However many systems are compared, each query is encoded once and each signal is searched once.

    \b
    Examples:
      termweave evaluate demo demo
      termweave evaluate docs ./nfcorpus:dev --save runs/
      termweave evaluate docs ./nfcorpus --mode dense --mode hybrid --rerank none --rerank rnn --baseline dense
      termweave evaluate products ubi:opensearch
      termweave evaluate docs book:docs --against docs-small
      termweave evaluate docs ./nfcorpus --baseline runs/hybrid.trec --html report.html --latency 50
      termweave evaluate docs ./nfcorpus --require 'nDCG@10>=0.35' --require 'hybrid+rNN:MRR@10 within .01 of runs/hybrid.trec'
    """
    if html is not None:
        html_page.require_plots()
    parsed = [gates.parse(text) for text in required]
    judged = corpora.open_dataset(dataset)
    writable(folder, [html])
    check_together(("--against and --baseline both name what to compare with", against is not None and baseline is not None))
    server = engine.connect(settings)
    index = search.Index.pinned(server, name, **models)
    plain = against is not None and not chosen and not rerankers
    rows = [systems.default_system(index)] if plain else systems.grid(chosen, rerankers, index)
    with out.progress("Queries") as bar:
        if against is None:
            experiment = evaluate(index, judged, rows, progress=bar, baseline=baseline, required=parsed)
        else:
            other = search.Index.pinned(server, against)
            experiment = evaluate_against(index, name, other, against, judged, rows, progress=bar, required=parsed)
            costs = [_cost(shown, each, list(experiment.texts.values())) for shown, each in ((name, index), (against, other))]
            experiment = replace(experiment, notes=(*costs, *experiment.notes))
    try:
        if timed:
            texts = [experiment.texts[query] for query in experiment.queries[:timed]]
            with out.progress("Timing") as bar:
                measured = systems.latency(index, systems.with_baseline(rows, baseline, index)[0], texts, bar)
            experiment = replace(experiment, latency=measured)
        verdicts = [gates.verdict(gate, experiment, judged) for gate in parsed]
    finally:  # after the gates, which may read older runs from the same folder; even if a gate fails, the runs are written
        if folder is not None:
            _write(experiment, folder, out)
    out.say(*experiment.notes)
    if html is not None:
        _write_page(html, experiment, judged, index, verdicts, out)
    out.emit({**table.as_json(experiment), "gates": list(map(asdict, verdicts))}, lambda: table.table(experiment))
    for verdict in verdicts:
        if verdict.met:
            out.say(f"Met: {verdict.reason}.")
        else:
            # Even with --quiet: it is the reason for exit status 3.
            click.echo(printable(f"NOT met: {verdict.reason}."), err=True)
    return 0 if all(verdict.met for verdict in verdicts) else GateNotMet.exit_status


def _cost(name: str, index: Index, questions: list[str]) -> str:
    """Measure the time of a default search and the disk space of an index, and return both as a sentence."""
    price = cost(index, questions)
    size = f", and the index {sized(price.bytes)} on disk" if price.bytes else ""
    return f"A search of {name} takes {price.milliseconds:.1f} ms (median){size}."


def _write(experiment: Experiment, folder: Path, out: Output) -> None:
    """Write the runs, the values of every query and the table of an experiment as files into a folder."""
    ours = [row.system for row in experiment.rows if row.mode != "run"]
    for system in ours:
        runs.write(experiment.runs[system], folder / f"{system}.trec")
    table.write_per_query(experiment, folder / "values.tsv")
    (folder / "table.md").write_text(table.markdown(experiment) + "\n", encoding="utf-8")
    out.say(f"{counted(len(ours), 'run')}, values.tsv and table.md in {folder}")
    saved = (scores for system in ours for scores in experiment.runs[system].scores.items())
    if rewritten := runs.percent_encoded(identity for query, documents in saved for identity in (query, *documents)):
        out.say(runs.encoding_remark(rewritten))


def _write_page(path: Path, experiment: Experiment, dataset: Dataset, index: Index, verdicts: list[Any], out: Output) -> None:

    models = dict.fromkeys(model.name for model in index.lineage.models.values())
    server = index.engine
    about = {"index": index.generation, server.product: server.capabilities.version, "models": ", ".join(models) or "none"}
    with private_files.open_private(path, encoding="utf-8") as file:
        file.write(html_page.html(experiment, dataset, about=about, verdicts=verdicts))
    out.say(f"The report is {path}")
