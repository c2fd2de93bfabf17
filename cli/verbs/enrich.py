"""`termweave enrich` and `connect`: write signals into an application's own index, and let any client search learned weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from termweave import answers, engine
from termweave.cli.build_report import terminable
from termweave.cli.declared_options import FloatRange, IntRange, click_options, flag, option
from termweave.cli.shared_options import check_together, token_option, verb
from termweave.cli.source_options import is_index, open_source, source_options
from termweave.indexer.options import BuildOptions, models_in

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.indexer.enrichment.enrichment import EnrichmentPlan
    from termweave.settings import Settings


@verb("enrich", connects=True, long=True)
@click.argument("source", metavar="INDEX")
@flag("--remove", "Remove the fields again from all documents, with lineage and statistics.")
@flag("--plan only_plan", "Check everything and say what would be written, without writing.")
@flag(
    "--yes", "Let the index be closed for about a second, which the signal learned needs, and --remove to take its analyzers out."
)
@option(
    "--watch every",
    "Go on: look every SECONDS seconds for documents that the application wrote, until Ctrl-C. Implies --skip-bad.",
    "SECONDS",
    type=FloatRange(min=0.1, max=86_400),
)
@click_options(
    BuildOptions,
    "build",
    ("model", "weights", "dense", "signals"),
    {"signals": "Signals to write, of weights, dense, learned.  [default: the first two]"},
)
@option(
    "--lexical-field lexical",
    "A text field that the signal lexical searches by BM25, and its weight; repeat for several.  [default: those of title and text]",
    "NAME[^WEIGHT]",
    multiple=True,
    callback=lambda _, __, values: _weighted(values),
)
@source_options(ids=False)  # a document is called by its `_id` there
def command(
    *,
    source: str,
    remove: bool,
    only_plan: bool,
    yes: bool,
    every: float | None,
    lexical: dict[str, float],
    build: dict[str, Any],
    reading: dict[str, Any],
    settings: Settings,
    out: Output,
) -> None:
    """Write term weights and vectors into the existing INDEX of an application, beside its own fields.

    INDEX may be an alias or a data stream, of several indices, too: all of them are enriched alike and searched as one. A watch follows the
    name: to the index that an alias is moved to, to one that is made again, and to the next one of a data stream.

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
      termweave enrich products --text-field description --lexical-field name^3 --lexical-field description
      termweave enrich products --watch 5
      termweave enrich products --remove
    """
    from termweave.corpora import IndexReading
    from termweave.corpora.formats.addresses import PREFIX
    from termweave.indexer.enrichment import enrichment

    check_together(
        ("--remove, --plan and --watch exclude each other: give one of them", sum((remove, only_plan, every is not None)) > 1),
        (f"{source} is an address: give the name of an index on the server of --url, such as products", is_index(source)),
    )
    reading["skip_bad"] |= every is not None  # one document must not end a watch
    on_target = IndexReading(settings=lambda _: settings, hidden=True, texts=not remove)
    documents = open_source(f"{PREFIX}{source}", {**reading, "index": on_target}, out).index
    assert documents is not None
    options = BuildOptions(**models_in(build, settings), skip_bad=reading["skip_bad"])
    server = engine.connect(settings).patient(options.patience, out.say)
    try:
        with terminable(Event()) if every is not None else nullcontext(), out.stages("Reading") as progress:
            if remove:
                count = enrichment.remove(server, documents, progress, close=yes, say=out.say)
                data = {"schema": "termweave.enrich/1", "index": source, "removed": count}
                out.emit(data, f"{source}: the fields were removed from {count:,} documents; their mapping stays, empty.")
                return
            if only_plan:
                _show_plan(source, enrichment.plan_enrichment(server, documents, options, progress, lexical), out)
                return
            done = enrichment.enrich(server, documents, options, progress, close=yes, lexical=lexical, every=every, say=out.say)
    finally:
        documents.release()
    out.say(*done.notes)
    written = [name for name in done.signals if name != "lexical"]
    out.emit(
        {"schema": "termweave.enrich/1", **asdict(done)},
        f"{source}: {done.documents:,} documents have the fields of {', '.join(written)}, verified ({done.written:,} written now, "
        f"{done.conflicts:,} found changed meanwhile and looked at again)",
    )


def _weighted(values: Sequence[str]) -> dict[str, float]:
    """Parse values NAME or NAME^WEIGHT into field -> weight (1 if none is given)."""
    weights = {}
    for value in values:
        name, _, weight = value.partition("^")
        try:
            weights[name] = float(weight or 1)
        except ValueError:
            weights[name] = math.nan
        if not name or not 0 < weights[name] < math.inf:
            raise click.BadParameter(f"{value!r} is not a field with a weight above 0. Write --lexical-field name^2.")
    return weights


def _show_plan(name: str, planned: EnrichmentPlan, out: Output) -> None:
    out.say(*planned.notes)
    models = ", ".join(f"{output} of {model}" for output, model in planned.models.items())
    took = f", about {planned.seconds:,.0f} s to encode on this machine" if planned.seconds is not None else ""
    out.emit(
        {"schema": "termweave.enrich-plan/1", **asdict(planned)},
        f"{name}: {planned.to_write:,} of {planned.documents:,} documents get the fields of {', '.join(planned.signals)} ({models}){took}. "
        "Nothing was written.",
    )


@verb("connect", connects=True)
@click.argument("name")
@option(
    "--model-server address",
    "Address of 'termweave serve --models', as the cluster reaches it.",
    "URL",
    default="http://127.0.0.1:8321",
    show_default=True,
)
@token_option("File with the token of the model server. The cluster stores it encrypted.")
@option("--mode", "Signals and weights, as in 'termweave search'.  [default: the adopted profile, else hybrid]")
@option("--candidates", "How many documents each signal gives.", type=IntRange(1, 10_000), default=100, show_default=True)
@flag("--fallback", "While the model server fails, run each query as it was sent, by BM25, instead of failing.")
@flag(
    "--documents", "Make an ingest pipeline, too, that encodes the documents which an application writes into an enriched NAME."
)
@flag("--plan only_plan", "Write nothing; report what would be registered.")
@flag("--remove", "Remove what this command registered for NAME, and nothing else.")
def connect(*, name: str, only_plan: bool, remove: bool, settings: Settings, out: Output, **options: Any) -> None:
    """Register the model server of NAME in the cluster, so that any client searches it by words only.

    On OpenSearch makes a remote model NAME-query in the plugin ml-commons, a search pipeline NAME-learned and a search template
    NAME-learned. An application adds ?search_pipeline=NAME-learned to its searches and keeps the rest. On Elasticsearch (licence
    enterprise) makes inference endpoints and the search template NAME-learned. The same command, run again, changes nothing. The ingest
    pipeline of --documents stays until --remove.

    \b
    Examples:
      termweave connect docs
      termweave connect docs --model-server http://10.0.0.5:8321 --token-file token.txt --fallback
      termweave connect products --documents
      termweave connect docs --plan
      termweave connect docs --remove
    """
    from termweave.serving.connector import connection
    from termweave.serving.connector.registrations import ConnectOptions

    not_removing = only_plan or any(options[each] for each in ("mode", "documents", "fallback"))
    check_together(("--remove takes no --plan, --mode, --documents or --fallback", remove and not_removing))
    server = engine.connect(settings)
    if remove:
        removed = connection.remove(server, name)
        text = f"{name}: removed {', '.join(removed)}." if removed else f"{name} was not connected."
        out.emit({"schema": "termweave.connect/1", "name": name, "removed": removed}, text)
        return
    planned = connection.plan(server, name, ConnectOptions(**options))
    parts = planned.connection
    out.say(*planned.notes)
    if not only_plan:
        connection.connect(server, planned, out.say)
    template_only = server.capabilities.distribution == "elasticsearch"
    kind, call = ("search template", "/template") if template_only else ("search pipeline", f"?search_pipeline={parts.pipeline}")
    data: answers.Connect = {
        "schema": "termweave.connect/1",
        "name": name,
        "pipeline": None if template_only else parts.pipeline,
        "template": parts.pipeline,
        "ingest_pipeline": parts.ingest_pipeline if parts.documents else None,
        "remote_models": list(parts.model_bodies()),
        "model_server": parts.address,
        "models": dict(parts.models),
        "weights": dict(parts.weights),
        "fallback": parts.options.fallback,
        "notes": list(planned.notes),
        "written": not only_plan,
    }
    does = "would register" if only_plan else "connected by"
    out.emit(data, f"{name}: {does} the {kind} {parts.pipeline}. Search with POST {name}/_search{call}.")
