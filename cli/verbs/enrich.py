"""`termweave enrich`: write the fields of the signals into an existing index of another application."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.declared_options import click_options
from termweave.cli.options.shared_options import verb
from termweave.cli.options.source_options import is_index, open_source, release, source_options
from termweave.indexer.options import BuildOptions, models_in

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.indexer.enrichment.enrichment import EnrichmentPlan
    from termweave.settings import Settings


@verb("enrich", connects=True, long=True)
@click.argument("source", metavar="INDEX")
@click.option("--remove", is_flag=True, help="Remove the fields again from all documents, with lineage and statistics.")
@click.option("--plan", "only_plan", is_flag=True, help="Check everything and say what would be written, without writing.")
@click.option("--yes", is_flag=True, help="Let the index be closed for about a second, which the signal learned needs.")
@click_options(BuildOptions, "build", ("model", "weights", "dense", "signals"))
@source_options()
def command(
    *,
    source: str,
    remove: bool,
    only_plan: bool,
    yes: bool,
    build: dict[str, Any],
    skip_bad: bool,
    reading: dict[str, Any],
    settings: Settings,
    out: Output,
) -> None:
    """Write term weights and vectors into the existing INDEX of an application, beside its own fields.

    Every document gets the fields of the signals by partial updates; nothing else in it changes. A write of the application is never
    undone: a document that it changed meanwhile is enriched again. The signals are weights and dense, and learned where it is named, which any
    client searches by a match query. The same command, run again, resumes, enriches what is new or changed, and verifies the rest. Afterwards
    'termweave search INDEX' works with the signals weights, dense and hybrid.

    \b
    Examples:
      termweave enrich products --title-field name --text-field description
      termweave enrich products --text-field description --signals weights
      termweave enrich products --text-field description --signals learned --yes
      termweave enrich products --title-field name --text-field description --plan
      termweave enrich products --remove
    """
    from termweave import engine
    from termweave.corpora.formats.index_address import PREFIX
    from termweave.engine.index_source.source import IndexSource
    from termweave.errors import UsageError
    from termweave.indexer.enrichment import enrichment

    if remove and only_plan:
        raise UsageError("--remove and --plan exclude each other.", "Leave one of them out.")
    if is_index(source):
        raise UsageError(
            f"{source} is an address.", "Give the name of an index on the server of --url: termweave enrich products."
        )
    opened = open_source(f"{PREFIX}{source}", {**reading, "index": _on_target(settings)}, out, skip_bad=skip_bad)
    if not isinstance(opened, IndexSource):
        raise TypeError
    options = BuildOptions(**models_in(build, settings), skip_bad=skip_bad)
    server = engine.connect(settings).patient(options.patience, out.say)
    try:
        with out.stages("Reading") as progress:
            if remove:
                count = enrichment.remove(server, opened, progress)
                data = {"schema": "termweave.enrich/1", "index": source, "removed": count}
                out.emit(data, f"{source}: the fields were removed from {count:,} documents; their mapping stays, empty.")
                return
            if only_plan:
                _show_plan(source, enrichment.plan_enrichment(server, opened, options, progress), out)
                return
            done = enrichment.enrich(server, opened, options, progress, close=yes)
    finally:
        release(opened)
    for note in done.notes:
        out.say(note)
    out.emit(
        {
            "schema": "termweave.enrich/1",
            "index": done.index,
            "documents": done.documents,
            "written": done.written,
            "conflicts": done.conflicts,
            "signals": list(done.signals),
            "notes": list(done.notes),
        },
        f"{source}: {done.documents:,} documents have the fields of {', '.join(done.signals)}, verified ({done.written:,} written now, "
        f"{done.conflicts:,} changed by the application meanwhile and enriched again)",
    )


def _show_plan(name: str, planned: EnrichmentPlan, out: Output) -> None:
    for note in planned.notes:
        out.say(note)
    models = ", ".join(f"{output} of {model}" for output, model in planned.models.items())
    took = f", about {planned.seconds:,.0f} s to encode on this machine" if planned.seconds is not None else ""
    out.emit(
        {"schema": "termweave.enrich-plan/1", **asdict(planned)},
        f"{name}: {planned.to_write:,} of {planned.documents:,} documents get the fields of {', '.join(planned.signals)} ({models}){took}. "
        "Nothing was written.",
    )


def _on_target(settings: Settings) -> Any:
    from termweave.corpora import IndexReading

    return IndexReading(settings=lambda _: settings)
