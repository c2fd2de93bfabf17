"""`termweave evaluate`: a table of modes and measures, with significance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.search import model_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.evaluation import Experiment
    from termweave.settings import Settings


@click.command("evaluate", context_settings=CONTEXT, short_help="A table of modes and measures, with significance.")
@click.argument("name")
@click.argument("dataset")
@click.option(
    "--save-run", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Write every system's run as a TREC file."
)
@click.option(
    "--require", "required", multiple=True, metavar="GATE", help="Exit with 3 unless it holds: 'nDCG@10>=0.4'; repeatable."
)
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
@model_options
@output_options
@connection_options
def command(
    *,
    name: str,
    dataset: str,
    save_run: Path | None,
    required: tuple[str, ...],
    markdown: bool,
    weights: str | None,
    dense: str | None,
    settings: Settings,
    out: Output,
) -> int:
    """Compare BM25, each signal, hybrid and hybrid+rNN on the judged queries of DATASET.

    DATASET is a BEIR folder or 'demo'; PATH:SPLIT names the split (default: test). p-values come from a paired
    randomisation test against BM25, corrected for the number of systems (Holm).

    \b
    Examples:
      termweave evaluate demo demo
      termweave evaluate docs ./nfcorpus:dev --save-run runs/
      termweave evaluate docs ./nfcorpus --json
      termweave evaluate docs ./nfcorpus --require 'nDCG@10>=0.35' --require 'hybrid+rNN:MRR@10 within .01 of runs/hybrid.trec'
    """
    from termweave import corpora, engine
    from termweave.errors import GateNotMet
    from termweave.evaluation import evaluate, gates, report, runs
    from termweave.search import Index

    parsed = [gates.parse(each) for each in required]
    opened = corpora.open_dataset(dataset)
    index = Index.open(engine.connect(settings), name, weights=weights or settings.weights, dense=dense or settings.dense)
    with out.progress("Queries") as bar:
        found = evaluate(index, opened, progress=bar)
    for note in opened.notes:
        out.say(note)
    if save_run is not None:
        save_run.mkdir(parents=True, exist_ok=True)
        for system, run in found.runs.items():
            runs.write(run, save_run / f"{system}.trec")
        out.say(f"{len(found.runs)} runs in {save_run}")
    verdicts = [gates.check(each, found, opened) for each in parsed]
    told = [
        {"gate": gate.text, "met": verdict.met, "reason": verdict.reason} for gate, verdict in zip(parsed, verdicts, strict=True)
    ]
    out.emit({**as_json(found), "gates": told}, report.markdown(found) if markdown else lambda: report.table(found))
    for verdict in verdicts:
        out.say(f"{'Met' if verdict.met else 'NOT met'}: {verdict.reason}.")
    return 0 if all(verdict.met for verdict in verdicts) else GateNotMet.exit_status


def as_json(experiment: Experiment) -> dict[str, Any]:
    """Rows of mode, reranker, measure, value, p, n."""
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
    return {"schema": "termweave.evaluate/1", "dataset": experiment.dataset, "baseline": experiment.baseline, "rows": rows}
