"""`termweave tune` and `profiles`: fit a search profile and measure it; list, compose, choose or delete profiles."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from termweave import corpora, engine, search
from termweave.catalog import audit
from termweave.catalog.lineage import Lineage, layout_with_fields, read_lineage, resolve_index, store_lineage
from termweave.catalog.profiles import Profile, adopted, check_name, using, without
from termweave.cli.declared_options import DeclaredValue, click_options, flag, option
from termweave.cli.output import Output, fitted_table
from termweave.cli.shared_options import check_together, model_options, verb
from termweave.declared_settings import settings_of
from termweave.errors import GateNotMet, UsageError
from termweave.evaluation.measures import label, queries
from termweave.evaluation.tuning import tune as tuning
from termweave.rerank import rerankers
from termweave.rerank.feature_ranker import FeatureReranker
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.stored_rerankers import reranking_of, stages_of
from termweave.search.filters.documents import documents_passing
from termweave.search.options import RankingOptions
from termweave.search.profiles import composed, find, rewriting_of
from termweave.search.retrieval.execution import check_needs
from termweave.search.rewriting.configuration import NOTHING, parse
from termweave.search.rewriting.rewriter import check_fields
from termweave.search.single_query import choose
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.engine import Engine
    from termweave.evaluation import TuningReport
    from termweave.settings import Settings


@verb("tune", connects=True, long=True)
@click.argument("name")
@click.argument("dataset")
@option("--measure", "The measure to optimise.", type=click.Choice(["nDCG@10", "MRR@10"]), default="nDCG@10", show_default=True)
@option("--profile", "Name of the stored profile.", "TEXT", default="tuned", show_default=True)
@option(
    "--rerank",
    "A cross-encoder to try after the rest is chosen: ranker@FOLDER, or FOLDER or hf:OWNER/NAME for short. Its depth and its "
    "weight are fitted. Or ltr@FOLDER, with the signals and the fusion that it was trained behind.",
    "NAME",
)
@option(
    "--rerank-budget",
    "Time that the ranker has for a query, such as 80ms: it limits the depth, and searches with the profile keep to it.",
    "TIME",
    type=DeclaredValue(settings_of(RankingOptions)["rerank_budget"]),
)
@flag("--adopt", "Let searches use a better profile even where its gain may be chance.")
@flag("--dry-run", "Print the result, and store nothing.")
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
    """Choose how NAME is searched, by the judged queries of DATASET (as in 'termweave evaluate': judgements or clicks).

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
      termweave tune docs clicks.tsv
      termweave tune docs ./judged --rerank ranker@path/to/model --rerank-budget 80ms
      termweave tune docs ./judged --json
    """
    index = search.Index.pinned(engine.connect(settings), name, **models)
    check_name(profile, index.signals)
    with out.stages("Tuning") as progress:
        judged, ranker = corpora.open_dataset(dataset), _ranker(rerank, rerank_budget)
        report = tuning.tune(index, judged, name=profile, measure=measure, ranker=ranker, progress=progress)
    adopted = (report.proved or (report.better and adopt)) and not dry_run
    proposed = report.better and not (adopted or dry_run or report.in_force == profile)
    if adopted or proposed:
        index.adopt(report.profile, use=adopted)
        if (live := resolve_index(index.engine, name)) != index.generation:
            out.warn(f"{name} points to {live} by now. The profile is stored with {index.generation}, which was tuned.")
        elif adopted:
            audit.write(index.engine, "profile", name, before=report.in_force, after=profile)
    data = {"schema": "termweave.tune/1", **asdict(report), "adopted": adopted, "proposed": proposed}
    out.emit(data, lambda: _show(report, out, adopted=adopted))
    if not report.better and report.gain > 0:
        raise GateNotMet(
            f"The profile in force, {report.in_force!r}, has the higher mean on the {report.held_out} held-out queries "
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
        difference = f" ({report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f})" if report.gain else ""
        measured = f"{report.held_out} held-out" if report.gain else f"{report.fitted} fitted"
        message = f"The best profile does not beat the default on the {measured} queries{difference}; nothing was stored."
        raise GateNotMet(message, "Judge more queries, or keep the default.")


def _ranker(rerank: str | None, budget: float | None) -> CrossEncoderReranker | FeatureReranker | None:
    """The ranker that --rerank names, to be tuned with the profile; None: no ranker is named.

    Raises:
        UsageError: --rerank names a reranker that is no ranker, or a time budget was given without a suitable ranker.
    """
    check_together(("A time budget needs a ranker: add --rerank ranker@FOLDER", rerank is None and budget is not None))
    if rerank is None:
        return None
    chosen = rerankers.choose(rerank)
    match chosen.stages if chosen else ():
        case (FeatureReranker() as ranker,) if budget is None:
            return ranker
        case (CrossEncoderReranker() as cross_encoder,):
            return cross_encoder if budget is None else cross_encoder.with_budget(budget)
    hint = "Write --rerank ranker@FOLDER, or ltr@FOLDER without a budget, or leave it out."
    raise UsageError(f"'termweave tune' takes one ranker, not {rerank!r}. It tries the reranker rNN in any case.", hint)


def _show(report: TuningReport, out: Output, *, adopted: bool) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(f"{report.dataset}, {queries(report.held_out, 'held-out')}")
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("search")
    table.add_column(report.measure, justify="right")
    titles = {"tuned": report.profile.name, "in force": f"{report.in_force}, in force"}
    for system, value in report.figures.items():
        table.add_row(titles.get(system) or label(system), f"{value:.4f}", style="bold" if system == "tuned" else "")
    console = out.console()
    console.print(table)
    gain = f"{report.gain:+.4f}, 95 % between {report.low:+.4f} and {report.high:+.4f}, p {report.p:.3g}"
    console.print(f"tuned against default: {gain} ({counted(report.trials, 'trial')} on {queries(report.fitted)})")
    parts = [f"{name} {share:.2f}" for name, share in report.profile.weights.items()]
    console.print(f"fusion {report.profile.fusion}: {', '.join(parts)}")
    parameters = (f"{name} {value}" for name, value in (report.profile.reranking or {}).items() if name != "similarity")
    no_rnn = "no rNN reranking" if report.profile.ranker else "no reranking"
    console.print(f"rnn: {', '.join(parameters)}" if report.profile.reranking else no_rnn)
    if ranker := report.profile.ranker:
        parameters = (f"{name} {value}" for name, value in ranker.items() if name not in {"model", "hash"} and value)
        console.print(f"ranker {ranker['model']}: {', '.join(parameters)}")
    for note in report.notes:
        console.print(note)
    if adopted:
        console.print(f"Stored as the profile {report.profile.name!r}; 'termweave search' uses it from now on.")


@verb("profiles", connects=True)
@click.argument("name")
@option("--use", "Let searches use this profile from now on; 'hybrid' stands for no profile.", "PROFILE")
@option("--save", "Store --mode, --rerank (rnn, then rules) and --rewrite under this name.", "PROFILE")
@click_options(RankingOptions, "ranking", ("mode", "rerank", "rewrite"))
@option("--drop", "Delete this profile. If searches use it, they use no profile from now on.", "PROFILE")
def profiles(
    *, name: str, use: str | None, save: str | None, ranking: dict[str, Any], drop: str | None, settings: Settings, out: Output
) -> None:
    """List the profiles of NAME, which 'termweave tune' or --save stored, and what they gained; choose one, or delete one.

    A profile that is tuned again stays under a number (tuned-1, tuned-2 ...), the last five of them; 'termweave audit NAME' says when each came
    into force.

    \b
    Examples:
      termweave profiles docs
      termweave profiles docs --use tuned
      termweave profiles docs --save shop --rerank 'rnn>boost@votes:0.2' --rewrite spelling,synonyms@shop.txt,pins@pins.csv --use shop
      termweave profiles docs --use hybrid
      termweave profiles docs --drop tuned
    """
    check_together(("--mode, --rerank and --rewrite go with --save PROFILE", bool(ranking) and save is None))
    server = engine.connect(settings)
    index = resolve_index(server, name)
    before = record = read_lineage(server, index)
    if drop is not None:
        record = without(record, drop)
    if save is not None:
        options = RankingOptions(**ranking)
        mode, reranking = choose(record, options.mode, options.rerank)
        composition = composed(record, save, mode, reranking, parse(options.rewrite))
        record = adopted(record, composition, use=save == record.profile)
    if use is not None:
        record = using(record, None if use == "hybrid" else use)
    for title in dict.fromkeys((save, use)):
        if title and (profile := find(record, title)):
            _check_needs(server, index, record, profile, out, stored=title != save)
    if record is not before:
        store_lineage(server, index, record)
    now, then = ((each.profile, each.profiles.get(each.profile)) for each in (record, before))
    if now != then:  # a profile that is saved anew keeps its name
        audit.write(server, "profile", record.name, before=before.profile, after=record.profile)
    stored = [profile for title in sorted(record.profiles) if (profile := find(record, title))]
    data = {"schema": "termweave.profiles/1", "name": name, "in_force": record.profile, "profiles": list(map(asdict, stored))}
    none = f"{name} has no profiles. Make one: termweave tune {name} DATASET."
    out.emit(data, lambda: _table(stored, record, out.console().width) if stored else none)


def _check_needs(server: Engine, index: str, record: Lineage, profile: Profile, out: Output, *, stored: bool) -> None:
    """Check that an index has what a profile needs, and warn of pinned documents that are not in it."""
    layout, rewriting = layout_with_fields(server, index, record), rewriting_of(profile) or NOTHING
    reranking = reranking_of(profile)
    check_needs(record.name, layout, reranking.needs if reranking else ())
    for stage in stages_of(profile):
        stage.check(layout)
    check_fields(record.name, layout, rewriting, profile=profile.name if stored else "")
    pinned = [document for pins in rewriting.of_queries.values() for document in pins.first]
    if absent := set(pinned).difference(documents_passing(server, index, layout, list(dict.fromkeys(pinned)), [])):
        documents = counted(len(absent), "pinned document is", "pinned documents are")
        out.warn(f"{documents} not in the index: {few(sorted(absent))}.")


def _table(stored: list[Profile], record: Lineage, width: int) -> Table:

    def held_out(name: str) -> list[str]:
        figures = [profile.fitted.get("held_out", {}).get(name) for profile in stored]
        return ["" if figure is None else f"{figure:.4f}" for figure in figures]

    columns = {
        "profile": [profile.name for profile in stored],
        "state": ["in force" if profile.name == record.profile else "" for profile in stored],
        "fusion": [
            f"{each.fusion}: {', '.join(f'{name} {share:.2f}' for name, share in each.weights.items())}" for each in stored
        ],
        "reranking": [reranking.name if (reranking := reranking_of(profile)) else "none" for profile in stored],
        **({"queries": [str(rewriting_of(each) or "") for each in stored]} if any(each.rewrite for each in stored) else {}),
        "fitted on": [f"{profile.fitted.get('dataset', '')} {profile.fitted.get('measure', '')}" for profile in stored],
        "at": [str(profile.fitted.get("at", ""))[:16].replace("T", " ") for profile in stored],
        "held out: tuned": held_out("tuned"),
        "default": held_out("default"),
    }
    return fitted_table(columns, width, always={"state"})
