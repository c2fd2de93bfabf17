"""`termweave generations`: list the generations of an index."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli.common.fitted_table import fitted_table
from termweave.cli.options.shared_options import verb
from termweave.support.messages import clipped, sized

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.cli.common.output import Output
    from termweave.indexer.generations.listing import Generation
    from termweave.settings import Settings


@verb("generations", connects=True)
@click.argument("name", required=False)
def command(*, name: str | None, settings: Settings, out: Output) -> None:
    """List the generations of NAME, newest first; without NAME those of all names.

    At most one is live. To finish an unfinished generation, repeat its 'termweave index' command. A generation that its gate refused
    is complete and verified: 'termweave promote' publishes it anyway, 'termweave prune' deletes it, and --json shows the figures that
    were too low.

    \b
    Examples:
      termweave generations
      termweave generations docs
      termweave generations docs --json
    """
    from termweave import engine
    from termweave.indexer.generations import listing
    from termweave.indexer.generations.listing import all_generations

    server = engine.connect(settings)
    of_names = {name: listing.list_generations(server, name)} if name else all_generations(server)
    listed = [generation for each in of_names.values() for generation in each]
    if not listed:
        out.say(f"No index at {server.url} was made by termweave. Make one: termweave index SOURCE NAME.")
    for generation in listed:
        if generation.unreadable:
            out.warn(generation.unreadable)
    data = {"schema": "termweave.generations/1", "name": name, "generations": [asdict(each) for each in listed]}
    out.emit(data, lambda: _table(listed, out.console().width) if listed else None)


def _table(listed: list[Generation], width: int) -> Table:
    """Format generations as a table. Names (needed for 'promote') and states are never cut; other columns appear if there is room."""
    from termweave.indexer.generations.listing import state_of

    columns = {
        "generation": [each.index for each in listed],
        "state": [state_of(each) for each in listed],
        "created (UTC)": [each.created[:19].replace("T", " ") for each in listed],
        "documents": ["-" if each.documents is None else f"{each.documents:,}" for each in listed],
        "size": [sized(each.bytes) for each in listed],
        "source": [each.source for each in listed],
        "built with": [_options(each) for each in listed],
    }
    return fitted_table(columns, width, kept={"state"}, right={"documents", "size"})


def _options(generation: Generation) -> str:
    """The signals of a generation, and the options of its build that change stored documents."""
    return " ".join(
        [", ".join(generation.signals), *(f"{flag} {clipped(value, 40)}" for flag, value in generation.options.items())]
    )
