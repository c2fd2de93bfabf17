"""`termweave tune`: choose fusion and reranking on one half of the judged queries, and measure them on the other half."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli.options.declared_options import DeclaredValue
from termweave.cli.options.shared_options import model_options, models_to_open, verb
from termweave.declared_settings import settings_of
from termweave.search.options import RankingOptions

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.evaluation import TuningReport
    from termweave.rerank.feature_ranker import FeatureReranker
    from termweave.rerank.ranker import CrossEncoderReranker
    from termweave.settings import Settings


@verb("tune", connects=True, long=True)
@click.argument("name")
@click.argument("dataset")
@click.option(
    "--measure", type=click.Choice(["nDCG@10", "MRR@10"]), default="nDCG@10", show_default=True, help="The measure to optimise."
)
@click.option("--profile", default="tuned", show_default=True, metavar="TEXT", help="Name of the stored profile.")
@click.option(
    "--rerank",
    metavar="NAME",
    help="A cross-encoder to try after the rest is chosen: ranker@FOLDER, or FOLDER or hf:OWNER/NAME for short. Its depth and its "
    "weight are fitted. Or ltr@FOLDER, with the signals and the fusion that it was trained behind.",
)
@click.option(
    "--rerank-budget",
    metavar="TIME",
    type=DeclaredValue(settings_of(RankingOptions)["rerank_budget"]),
    help="Time that the ranker has for a query, such as 80ms: it limits the depth, and searches with the profile keep to it.",
)
@click.option("--adopt", is_flag=True, help="Let searches use a better profile even where its gain may be chance.")
@click.option("--dry-run", is_flag=True, help="Print the result, and store nothing.")
@model_options
def command(
    *,
    name: str,
    dataset: str,
    measure: str,
    profile: str,
    rerank: str | None,
    rerank_budget: float | None,
    adopt: bool,
    dry_run: bool,
    models: dict[str, str | None],
    settings: Settings,
    out: Output,
) -> None:
    """Choose how NAME is searched, by the judged queries of DATASET.

    Tuning chooses the fusion method, the weights of the signals, and whether rNN reranks and with which parameters. It fits all of
    them on one half of the queries and measures the result on the other half. The profile is stored with the index, and searches
    use it from then on, if on that half it beats the default (hybrid without reranking) by more than chance (p < .05) and is not below
    the profile that searches use now. A gain that may be chance is stored as a proposal, which no search uses unasked. Otherwise
    nothing changes. In both cases the exit status is 3. 'search --mode hybrid' is always the untuned search; 'termweave profiles'
    lists and deletes profiles.

    \b
    Examples:
      termweave tune docs ./judged
      termweave tune docs ./judged:dev --measure MRR@10 --dry-run
      termweave tune docs ./judged --rerank ranker@path/to/model --rerank-budget 80ms
      termweave tune docs ./judged --json
    """
    from termweave import corpora, engine
    from termweave.catalog import audit, lineage
    from termweave.catalog.profiles import check_name
    from termweave.errors import GateNotMet
    from termweave.evaluation.tuning import tune as tuning
    from termweave.search import Index

    index = Index.pinned(engine.connect(settings), name, **models_to_open(models, settings))
    check_name(profile, index.signals)
    with out.stages("Tuning") as progress:
        report = tuning.tune(
            index,
            corpora.open_dataset(dataset),
            name=profile,
            measure=measure,
            ranker=_ranker(rerank, rerank_budget),
            progress=progress,
        )
    adopted = (report.proved or (report.better and adopt)) and not dry_run
    proposed = report.better and not (adopted or dry_run or report.in_force == profile)
    if adopted or proposed:
        index.adopt(report.profile, use=adopted)
        if (live := lineage.resolve(index.engine, name)) != index.generation:
            out.warn(f"{name} points to {live} by now. The profile is stored with {index.generation}, which was tuned.")
        elif adopted:
            audit.write(index.engine, "profile", name, before=report.in_force, after=profile)
    data = {"schema": "termweave.tune/1", **asdict(report), "adopted": adopted, "proposed": proposed}
    out.emit(data, lambda: _show(report, out, adopted=adopted))
    if not report.better and report.gain > 0:
        raise GateNotMet(
            f"The profile in force, {report.in_force!r}, is better on the {report.held_out} held-out queries "
            f"({report.figures['in force']:.4f} against {report.figures['tuned']:.4f}); nothing was stored.",
            f"It may have been fitted on some of these queries. 'termweave profiles {name} --drop {report.in_force}' removes it.",
        )
    if report.better and not (adopted or dry_run):
        stored = f"{profile!r} is stored as a proposal, which no search uses" if proposed else "nothing was stored"
        raise GateNotMet(
            f"The gain of {report.gain:+.4f} on {report.held_out} held-out queries may be chance (p {report.p:.2g}); {stored}.",
            f"Judge more queries. Or take it as it is: termweave tune {name} {dataset} --adopt.",
        )
    if not report.better:
        raise GateNotMet(
            f"The best profile does not beat the default on the {report.held_out} held-out queries "
            f"({report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f}); nothing was stored."
            if report.gain
            else f"No setting beats the default on the {report.fitted} fitted queries by more than noise; nothing was stored.",
            "Judge more queries, or keep the default.",
        )


def _ranker(rerank: str | None, budget: float | None) -> CrossEncoderReranker | FeatureReranker | None:
    """The ranker to tune.

    Raises:
        UsageError: It is another reranker, or a budget was given without one.
    """
    from termweave.errors import UsageError
    from termweave.rerank import rerankers
    from termweave.rerank.feature_ranker import FeatureReranker
    from termweave.rerank.ranker import CrossEncoderReranker

    if rerank is None:
        if budget is not None:
            raise UsageError("A time budget needs a ranker.", "Add --rerank ranker@FOLDER, or leave --rerank-budget out.")
        return None
    chosen = rerankers.choose(rerank)
    stages = chosen.stages if chosen else ()
    if len(stages) == 1 and isinstance(stages[0], FeatureReranker) and budget is None:
        return stages[0]
    if len(stages) != 1 or not isinstance(stages[0], CrossEncoderReranker):
        raise UsageError(
            f"tune takes one ranker, not {rerank!r}; it tries rNN anyway.",
            "Write --rerank ranker@FOLDER, or ltr@FOLDER without a budget, or leave it out.",
        )
    return stages[0] if budget is None else stages[0].with_budget(budget)


def _show(report: TuningReport, out: Output, *, adopted: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from termweave.evaluation.report.wording import label, queries
    from termweave.support.messages import counted

    heading = Text(f"{report.dataset}, {queries(report.held_out, 'held-out')}")
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("search")
    table.add_column(report.measure, justify="right")
    named = {"tuned": report.profile.name, "in force": f"{report.in_force}, in force"}
    for system, value in report.figures.items():
        table.add_row(named.get(system) or label(system), f"{value:.4f}", style="bold" if system == "tuned" else "")
    console = out.console()
    console.print(table)
    gain = f"{report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f}, p {report.p:.3g}"
    console.print(f"tuned against default: {gain} ({counted(report.trials, 'trial')} on {queries(report.fitted)})")
    parts = [f"{name} {share:.2f}" for name, share in report.profile.weights.items()]
    console.print(f"fusion {report.profile.fusion}: {', '.join(parts)}")
    reranking = report.profile.reranking
    if reranking:
        parameters = ", ".join(f"{name} {value}" for name, value in reranking.items() if name != "similarity")
        console.print(f"rnn: {parameters}")
    else:
        console.print("no rNN reranking" if report.profile.ranker else "no reranking")
    if ranker := report.profile.ranker:
        parameters = ", ".join(f"{name} {value}" for name, value in ranker.items() if name not in {"model", "hash"} and value)
        console.print(f"ranker {ranker['model']}: {parameters}")
    for note in report.notes:
        console.print(note)
    if adopted:
        console.print(f"Stored as the profile {report.profile.name!r}; 'termweave search' uses it from now on.")
