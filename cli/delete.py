"""`termweave delete`: an index with all its generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("delete", context_settings=CONTEXT, short_help="Delete an index with all its generations.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
@connection_options
def command(*, name: str, yes: bool, settings: Settings, out: Output) -> None:
    """Delete NAME: the alias, every generation, their statistics and ledgers. There is no way back.

    \b
    Examples:
      termweave delete docs
      termweave delete docs --yes
    """
    from termweave import engine
    from termweave.indexer import generations

    server = engine.connect(settings)
    found = generations.of(server, name)
    if not yes:
        documents = sum(each.documents for each in found)
        count = f"{len(found)} generation{'s' if len(found) != 1 else ''}"
        building = "" if all(each.complete for each in found) else " (one is unfinished: perhaps it is being built now)"
        click.confirm(f"Delete {name!r} with {count}{building} and {documents:,} documents?", abort=True, err=True)
    for each in found:
        generations.remove(server, each.index)
    data = {"schema": "termweave.delete/1", "name": name, "deleted": [each.index for each in found]}
    out.emit(data, f"{name}: deleted, {len(found)} generation{'s' if len(found) != 1 else ''}.")
