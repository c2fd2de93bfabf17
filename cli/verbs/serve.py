"""`termweave serve`: run a web server with pages and a JSON API, or a model server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from termweave import engine
from termweave.cli.declared_options import IntRange, flag, option, option_group
from termweave.cli.shared_options import check_rerankers, check_together, model_options, token_option, verb
from termweave.errors import UsageError
from termweave.support import extras

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.settings import Settings

#: Connections to the server: as many searches run at the same time.
_CONNECTIONS = 32


@verb("serve", connects=True)
@click.argument("index", required=False)
@option("--port", "Port to listen on; 0: a free one.", type=IntRange(0, 65_535), default=8321, show_default=True)
@flag("--read-only", "Refuse every change: no grades, no profiles, no promotion.")
@option(
    "--rerank rerankers",
    "A reranker that pages may use besides rnn, such as ranker@FOLDER; repeatable.",
    "NAME",
    multiple=True,
    callback=check_rerankers,
)
@option(
    "--on datasets",
    "A data set that pages may evaluate and tune on, as in 'termweave evaluate'; repeatable.",
    "DATASET",
    multiple=True,
)
@flag(
    "--models serves_models",
    "Serve models to other programs, not pages: those of all live indices (of INDEX, if it is given) and the shipped one.",
)
@option(
    "--model served",
    "Serve this model (a name or a folder), not pages; repeatable. Without --models no OpenSearch is asked.",
    "MODEL",
    multiple=True,
)
@option_group(
    "Access",
    option("--host", "Address to listen on; another one needs a token.", default="127.0.0.1", show_default=True),
    option(
        "--name names",
        "A further name under which browsers reach the pages, such as that of a proxy; repeatable. It needs a token.",
        "HOST",
        multiple=True,
    ),
    option(
        "--proxy proxies",
        "Address of a proxy, such as 127.0.0.1: what it says in X-Forwarded-For and X-Forwarded-Proto is believed; "
        "repeatable. It needs a token.",
        "ADDRESS",
        multiple=True,
    ),
    token_option("File with the token that clients must know: at least 16 characters."),
)
@model_options
def command(
    *, index: str | None, serves_models: bool, served: Sequence[str], settings: Settings, out: Output, **pages: Any
) -> None:
    """Serve web pages and a JSON API: search two configurations side by side, see why, judge, evaluate, tune, learn, promote. Ctrl-C ends it.

    INDEX is the index that pages show first. The pages are for this machine alone, unless --host or --name say otherwise. docs/serving.md
    describes the pages, docs/api.md the API, docs/protecting.md what protects them. With --models or --model it is a model server with
    OpenAI's API instead (docs/any-client.md).

    \b
    Examples:
      termweave serve docs
      termweave serve docs --port 0 --read-only
      termweave serve docs --host 10.0.0.5 --token-file token.txt
      termweave serve --models --port 8322
      termweave serve --model shipped --model ./mine
    """
    from termweave import corpora
    from termweave.catalog.lineage import resolve_index

    try:
        from termweave.serving import server
        from termweave.ui.serve_options import ServeOptions
    except ModuleNotFoundError as error:
        raise UsageError(f"The pages need the package {error.name!r}.", f"Install it with: {extras.install('ui')}") from None
    alone = bool(served) and not serves_models
    models_alone, for_pages = alone or serves_models, bool(pages["rerankers"] or pages["datasets"])
    check_together(
        ("Give INDEX together with --models, or leave it out", alone and index is not None),
        ("--rerank and --on are for pages: leave them out with --models and --model", models_alone and for_pages),
    )
    for spec in pages["datasets"]:
        corpora.check_dataset(spec)
    served = tuple(dict.fromkeys((*served, "shipped") if serves_models else served))
    options = ServeOptions(index=index, settings=settings, serves_models=serves_models or alone, served=served, **pages)
    connection = None if alone else engine.connect(settings, pool_maxsize=_CONNECTIONS)
    if index is not None and connection is not None:
        resolve_index(connection, index)

    def announce(url: str) -> None:
        out.emit({"schema": "termweave.serve/1", "url": url, "read_only": options.read_only}, f"{url} (Ctrl-C ends it)")

    server.run(connection, options, announce)
    out.say("Stopped.")
