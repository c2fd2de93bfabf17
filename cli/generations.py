"""`termweave generations`: what there is behind a name."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options
from termweave.words import sized

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.cli._options import Output
    from termweave.indexer.generations import Generation
    from termweave.settings import Settings


@click.command("generations", context_settings=CONTEXT, short_help="The generations of an index.")
@click.argument("name")
@output_options
@connection_options
def command(*, name: str, settings: Settings, out: Output) -> None:
    """List the generations of NAME, newest first.

    One is live. An unfinished one goes on with its 'termweave index' command. One that its gate refused is whole and verified:
    'termweave promote' publishes it all the same, 'termweave prune' removes it, and --json says what it missed.

    \b
    Examples:
      termweave generations docs
      termweave generations docs --json
    """
    from termweave import engine
    from termweave.indexer import generations

    found = generations.of(engine.connect(settings), name)
    data = {"schema": "termweave.generations/1", "name": name, "generations": [asdict(each) for each in found]}
    out.emit(data, lambda: _table(found))


def _table(found: list[Generation]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column, justify in (
        ("generation", "left"),
        ("created", "left"),
        ("source", "left"),
        ("documents", "right"),
        ("size", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for each in found:
        state = "live" if each.live else "unfinished" if not each.complete else "refused by its gate" if each.missed else ""
        documents = "-" if each.documents is None else f"{each.documents:,}"
        table.add_row(each.index, each.created, each.source, documents, sized(each.bytes), state)
    return table
