"""`termweave enrich`: write the fields of the signals into an existing index of another application."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common.progress import terminable
from termweave.cli.options.declared_options import click_options
from termweave.cli.options.number_types import FloatRange
from termweave.cli.options.shared_options import verb
from termweave.cli.options.source_options import is_index, open_source, source_options
from termweave.indexer.options import BuildOptions, models_in

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.indexer.enrichment.enrichment import EnrichmentPlan
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.settings import Settings


@verb("enrich", connects=True, long=True)
@click.argument("source", metavar="INDEX")
@click.option("--remove", is_flag=True, help="Remove the fields again from all documents, with lineage and statistics.")
@click.option("--plan", "only_plan", is_flag=True, help="Check everything and say what would be written, without writing.")
@click.option("--yes", is_flag=True, help="Let the index be closed for about a second, which the signal learned needs.")
@click.option(
    "--watch",
    "every",
    type=FloatRange(min=0.1, max=86_400),
    metavar="SECONDS",
    help="Go on: look every SECONDS seconds for documents that the application wrote, until Ctrl-C. Implies --skip-bad.",
)
@click_options(
    BuildOptions,
    "build",
    ("model", "weights", "dense", "signals"),
    {"signals": "Signals to write, of weights, dense, learned.  [default: the first two]"},
)
@source_options(ids=False)  # a document is called by its `_id` there
def command(
    *,
    source: str,
    remove: bool,
    only_plan: bool,
    yes: bool,
    every: float | None,
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
      termweave enrich products --watch 5
      termweave enrich products --remove
    """
    from termweave import engine
    from termweave.corpora.formats.index_address import PREFIX
    from termweave.errors import UsageError
    from termweave.indexer.enrichment import enrichment

    if sum((remove, only_plan, every is not None)) > 1:
        raise UsageError("--remove, --plan and --watch exclude each other.", "Give one of them.")
    if is_index(source):
        raise UsageError(
            f"{source} is an address.", "Give the name of an index on the server of --url: termweave enrich products."
        )
    skip_bad = skip_bad or every is not None  # one document must not end a watch
    opened = open_source(f"{PREFIX}{source}", {**reading, "index": _on_target(settings)}, out, skip_bad=skip_bad).index
    if opened is None:
        raise TypeError
    options = BuildOptions(**models_in(build, settings), skip_bad=skip_bad)
    server = engine.connect(settings).patient(options.patience, out.say)
    try:
        with terminable(Event()) if every is not None else nullcontext(), out.stages("Reading") as bar:
            progress = _announcing(bar, source, every, out)
            if remove:
                count = enrichment.remove(server, opened, progress)
                data = {"schema": "termweave.enrich/1", "index": source, "removed": count}
                out.emit(data, f"{source}: the fields were removed from {count:,} documents; their mapping stays, empty.")
                return
            if only_plan:
                _show_plan(source, enrichment.plan_enrichment(server, opened, options, progress), out)
                return
            done = enrichment.enrich(server, opened, options, progress, close=yes, every=every, say=out.say)
    finally:
        opened.release()
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
        f"{done.conflicts:,} found changed meanwhile and looked at again)",
    )


def _announcing(progress: BuildProgress, name: str, every: float | None, out: Output) -> BuildProgress:
    """Progress that also says when the watch begins: a log shows no bar."""
    from termweave.indexer.enrichment.enrichment import STAGE

    begun = False

    def show(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        nonlocal begun
        if stage == STAGE and not begun:
            begun = True
            out.say(f"{name} is enriched and watched every {every:g} s. Ctrl-C ends the watch.")
        progress(stage, done, total, detail)

    return show


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

    return IndexReading(settings=lambda _: settings, hidden=True)
