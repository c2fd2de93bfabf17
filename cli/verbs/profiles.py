"""`termweave profiles`: list the profiles of an index, put one together, choose the one that searches use, or delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common.fitted_table import fitted_table
from termweave.cli.options.declared_options import click_options
from termweave.cli.options.shared_options import check_together, verb
from termweave.search.options import RankingOptions

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.catalog.lineage import Lineage
    from termweave.catalog.profiles import Profile
    from termweave.cli.common.output import Output
    from termweave.engine import Engine
    from termweave.settings import Settings


@verb("profiles", connects=True)
@click.argument("name")
@click.option("--use", metavar="PROFILE", help="Let searches use this profile from now on; 'hybrid' stands for no profile.")
@click.option("--save", metavar="PROFILE", help="Store --mode, --rerank (rnn, then rules) and --rewrite under this name.")
@click_options(RankingOptions, "given", ("mode", "rerank", "rewrite"))
@click.option("--drop", metavar="PROFILE", help="Delete this profile. If searches use it, they use no profile from now on.")
def command(
    *, name: str, use: str | None, save: str | None, given: dict[str, Any], drop: str | None, settings: Settings, out: Output
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
    from dataclasses import asdict

    from termweave import engine
    from termweave.catalog import audit, lineage
    from termweave.catalog.profiles import adopted, using, without
    from termweave.search import profiles
    from termweave.search.rewriting.configuration import parse
    from termweave.search.single_query import choose

    check_together(("--mode, --rerank and --rewrite go with --save PROFILE", bool(given) and save is None))
    server = engine.connect(settings)
    index = lineage.resolve(server, name)
    record = lineage.read(server, index)
    before = record
    if drop is not None:
        record = without(record, drop)
    if save is not None:
        ranked = RankingOptions(**given)
        mode, reranking = choose(record, ranked.mode, ranked.rerank)
        composed = profiles.composed(record, save, mode, reranking, parse(ranked.rewrite))
        record = adopted(record, composed, use=save == record.profile)
    if use is not None:
        record = using(record, None if use == "hybrid" else use)
    for wanted in dict.fromkeys((save, use)):
        if wanted and (profile := profiles.find(record, wanted)):
            _check(server, index, record, profile, out, stored=wanted != save)
    if use is not None or save is not None or drop is not None:
        lineage.write(server, index, record)
    if _in_force(record) != _in_force(before):
        audit.write(server, "profile", record.name, before=before.profile, after=record.profile)
    stored = [profile for title in sorted(record.profiles) if (profile := profiles.find(record, title))]
    data = {
        "schema": "termweave.profiles/1",
        "name": name,
        "in_force": record.profile,
        "profiles": [asdict(profile) for profile in stored],
    }
    out.emit(
        data,
        lambda: (
            _table(stored, record, out.console().width)
            if stored
            else f"{name} has no profiles. Make one: termweave tune {name} DATASET."
        ),
    )


def _in_force(record: Lineage) -> tuple[str, Any]:
    """Name and content of the profile in force: a profile that is saved anew keeps its name."""
    return record.profile, record.profiles.get(record.profile)


def _check(server: Engine, index: str, record: Lineage, profile: Profile, out: Output, *, stored: bool) -> None:
    """Refuse a profile that needs what the index does not have; warn of pinned documents that are not in it."""
    from termweave.catalog import application_fields
    from termweave.rerank.stored_rerankers import reranking_of, stages_of
    from termweave.search.filters.documents import documents_passing
    from termweave.search.profiles import rewriting_of
    from termweave.search.retrieval.execution import check_needs
    from termweave.search.rewriting.configuration import NOTHING
    from termweave.search.rewriting.rewriter import check_fields
    from termweave.support.messages import counted, few

    layout, rewriting = application_fields.with_fields(server, index, record), rewriting_of(profile) or NOTHING
    reranking = reranking_of(profile)
    check_needs(record.name, layout, reranking.needs if reranking else ())
    for stage in stages_of(profile):
        stage.check(layout)
    check_fields(record.name, layout, rewriting, profile=profile.name if stored else "")
    pinned = [document for pins in rewriting.of_queries.values() for document in pins.first]
    if absent := set(pinned).difference(documents_passing(server, index, list(dict.fromkeys(pinned)), [])):
        out.warn(
            f"{counted(len(absent), 'pinned document')} {'is' if len(absent) == 1 else 'are'} not in the index: {few(sorted(absent))}."
        )


def _table(stored: list[Profile], record: Lineage, width: int) -> Table:
    from termweave.rerank.stored_rerankers import reranking_of
    from termweave.search.profiles import rewriting_of

    def held_out(name: str) -> list[str]:
        figures = [profile.fitted.get("held_out", {}).get(name) for profile in stored]
        return ["" if figure is None else f"{figure:.4f}" for figure in figures]

    columns = {
        "profile": [profile.name for profile in stored],
        "state": ["in force" if profile.name == record.profile else "" for profile in stored],
        "fusion": [
            f"{profile.fusion}: {', '.join(f'{name} {share:.2f}' for name, share in profile.weights.items())}"
            for profile in stored
        ],
        "reranking": [reranking.name if (reranking := reranking_of(profile)) else "none" for profile in stored],
        **({"queries": [str(rewriting_of(each) or "") for each in stored]} if any(each.rewrite for each in stored) else {}),
        "fitted on": [f"{profile.fitted.get('dataset', '')} {profile.fitted.get('measure', '')}" for profile in stored],
        "at": [str(profile.fitted.get("at", ""))[:16].replace("T", " ") for profile in stored],
        "held out: tuned": held_out("tuned"),
        "default": held_out("default"),
    }
    return fitted_table(columns, width, kept={"state"})
