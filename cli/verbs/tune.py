"""`termweave tune`: fusion and reranking fitted on one half of the judged queries, proved on the other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli._numbers import IntRange
from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.search import model_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.evaluation import Report
    from termweave.settings import Settings


@click.command("tune", context_settings=CONTEXT, short_help="Fit fusion and reranking on judged queries, and prove it.")
@click.argument("name")
@click.argument("dataset")
@click.option("--measure", type=click.Choice(["nDCG@10", "MRR@10"]), default="nDCG@10", show_default=True, help="What to go by.")
@click.option("--profile", default="tuned", show_default=True, metavar="TEXT", help="Name of the profile that is stored.")
@click.option("--trials", type=IntRange(0), default=0, show_default=True, help="Further trials by optuna (extra 'tune').")
@click.option("--seed", type=int, default=0, show_default=True, help="Which half of the queries is which.")
@click.option("--dry-run", is_flag=True, help="Report, and store nothing.")
@model_options
@output_options
@connection_options
def command(
    *,
    name: str,
    dataset: str,
    measure: str,
    profile: str,
    trials: int,
    seed: int,
    dry_run: bool,
    weights: str | None,
    dense: str | None,
    settings: Settings,
    out: Output,
) -> None:
    """Tune how NAME is searched by the judged queries of DATASET.

    Fusion method, weights of the signals, whether neighbours rerank and with which parameters: all is fitted on one half of the
    queries and measured on the other. A profile that beats the default there (hybrid without reranking, as search does it without a
    profile), and the profile in force if there is one, is stored with the index, and search uses it from then on; else nothing
    changes and the exit status is 3. 'search --mode hybrid' is always the untuned search; 'termweave profiles' lists and drops.

    \b
    Examples:
      termweave tune docs ./judged
      termweave tune docs ./judged:dev --measure MRR@10 --dry-run
      termweave tune docs ./judged --trials 2000 --seed 1 --json
    """
    from termweave import corpora, engine
    from termweave.errors import GateNotMet
    from termweave.evaluation import tuning
    from termweave.search import Index, lineage, profiles

    index = Index.pinned(engine.connect(settings), name, weights=weights or settings.weights, dense=dense or settings.dense)
    profiles.check_name(profile, index.signals)
    with out.progress("Tuning") as progress:
        report = tuning.tune(
            index,
            corpora.open_dataset(dataset),
            name=profile,
            measure=measure,
            seed=seed,
            trials=trials,
            progress=lambda stage, done, total: progress(done, total, stage),
        )
    adopted = report.better and not dry_run
    if adopted:
        index.adopt(report.profile)
        if (live := lineage.resolve(index.engine, name)) != index.generation:
            out.warn(f"{name} means {live} by now; the profile is stored with {index.generation}, which was tuned.")
    data = {"schema": "termweave.tune/1", **asdict(report), "adopted": adopted}
    out.emit(data, lambda: _show(report, out, adopted=adopted))
    if not report.better and report.gain > 0:
        raise GateNotMet(
            f"The profile in force, {report.in_force!r}, is better on the {report.held_out} held-out queries "
            f"({report.figures['in force']:.4f} against {report.figures['tuned']:.4f}); nothing was stored.",
            f"It may have been fitted on some of them: 'termweave profiles {name} --drop {report.in_force}' makes room for the new one.",
        )
    if not report.better:
        raise GateNotMet(
            f"The best profile found does not beat the default on the {report.held_out} held-out queries "
            f"({report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f}); nothing was stored."
            if report.gain
            else f"Nothing that was tried beats the default on the {report.fitted} fitted queries by more than their noise; "
            "nothing was stored.",
            "Judge more queries, or stay with the default.",
        )


def _show(report: Report, out: Output, *, adopted: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from termweave.evaluation.wording import label, queries
    from termweave.words import counted

    heading = Text(f"{report.dataset}, {queries(report.held_out, 'held-out')}")
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("search")
    table.add_column(report.measure, justify="right")
    named = {"tuned": report.profile.name, "in force": f"{report.in_force}, in force"}
    for system, value in report.figures.items():
        table.add_row(named.get(system) or label(system), f"{value:.4f}", style="bold" if system == "tuned" else "")
    console = out.console()
    console.print(table)
    told = f"{report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f}, p {report.p:.3g}"
    console.print(f"tuned against default: {told} ({counted(report.trials, 'trial')} on {queries(report.fitted)})", markup=False)
    parts = [f"{name} {share:.2f}" for name, share in report.profile.weights.items()]
    console.print(f"fusion {report.profile.fusion}: {', '.join(parts)}", markup=False)
    reranking = report.profile.reranking
    if reranking:
        parameters = ", ".join(f"{name} {value}" for name, value in reranking.items() if name != "similarity")
        console.print(f"rnn: {parameters}", markup=False)
    else:
        console.print("no reranking", markup=False)
    for note in report.notes:
        console.print(note, markup=False)
    if adopted:
        console.print(f"Stored as the profile {report.profile.name!r}; 'termweave search' uses it from now on.", markup=False)
