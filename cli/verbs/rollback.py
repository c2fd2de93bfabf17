"""`termweave rollback`: back to the generation before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.cli.promote import report

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("rollback", context_settings=CONTEXT, short_help="Back to the generation before.")
@click.argument("name")
@output_options
@connection_options
def command(*, name: str, settings: Settings, out: Output) -> None:
    """Point the alias NAME at the newest finished generation that is older than the live one.

    \b
    Examples:
      termweave rollback docs
    """
    from termweave import engine
    from termweave.indexer import generations

    server = engine.connect(settings)
    generation = generations.previous(server, name)
    report(name, generation, generations.promote(server, name, generation), out)
