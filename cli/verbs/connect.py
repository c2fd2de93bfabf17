"""`termweave connect`: let the cluster ask a model server, so that any client searches learned weights and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.number_types import IntRange
from termweave.cli.options.shared_options import check_together, token_option, verb

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("connect", connects=True)
@click.argument("name")
@click.option(
    "--model-server",
    "address",
    default="http://127.0.0.1:8321",
    show_default=True,
    metavar="URL",
    help="Address of 'termweave serve --models', as the cluster reaches it.",
)
@token_option("File with the token of the model server. The cluster stores it encrypted.")
@click.option("--mode", help="Signals and weights, as in 'termweave search'.  [default: the adopted profile, else hybrid]")
@click.option(
    "--candidates", type=IntRange(1, 10_000), default=100, show_default=True, help="How many documents each signal gives."
)
@click.option(
    "--fallback", is_flag=True, help="While the model server fails, run each query as it was sent, by BM25, instead of failing."
)
@click.option(
    "--documents",
    is_flag=True,
    help="Make an ingest pipeline, too, that encodes the documents which an application writes into an enriched NAME.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Write nothing; report what would be registered.")
@click.option("--remove", is_flag=True, help="Remove what this command registered for NAME, and nothing else.")
def command(
    *,
    name: str,
    address: str,
    token: str | None,
    mode: str | None,
    candidates: int,
    fallback: bool,
    documents: bool,
    only_plan: bool,
    remove: bool,
    settings: Settings,
    out: Output,
) -> None:
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
    from termweave import engine
    from termweave.serving.connector import connection
    from termweave.serving.connector.connection import ConnectOptions

    check_together(
        (
            "--remove takes no --plan, --mode, --documents or --fallback",
            remove and (only_plan or fallback or documents or bool(mode)),
        )
    )
    server = engine.connect(settings)
    if remove:
        removed = connection.remove(server, name)
        text = f"{name}: removed {', '.join(removed)}." if removed else f"{name} was not connected."
        gone: answers.Connect = {"schema": "termweave.connect/1", "name": name, "removed": removed}
        out.emit(gone, text)
        return
    options = ConnectOptions(
        address=address, token=token, mode=mode, candidates=candidates, fallback=fallback, documents=documents
    )
    planned = connection.plan(server, name, options)
    made = planned.connection
    for note in planned.notes:
        out.say(note)
    if not only_plan:
        connection.connect(server, planned, out.say)
    template_only = server.capabilities.distribution == "elasticsearch"
    kind, call = ("search template", "/template") if template_only else ("search pipeline", f"?search_pipeline={made.pipeline}")
    data: answers.Connect = {
        "schema": "termweave.connect/1",
        "name": name,
        "pipeline": None if template_only else made.pipeline,
        "template": made.pipeline,
        "ingest_pipeline": made.ingest_pipeline if made.documents else None,
        "remote_models": list(made.model_bodies()),
        "model_server": made.address,
        "models": dict(made.models),
        "weights": dict(made.weights),
        "fallback": made.fallback,
        "notes": list(planned.notes),
        "written": not only_plan,
    }
    out.emit(
        data,
        f"{name}: {'would register' if only_plan else 'connected by'} the {kind} {made.pipeline}. Search with POST "
        f"{name}/_search{call}.",
    )
