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
    for each in found:
        if each.unreadable:
            out.warn(each.unreadable)
    data = {"schema": "termweave.generations/1", "name": name, "generations": [asdict(each) for each in found]}
    out.emit(data, lambda: _table(found, out.console().width))


def _table(found: list[Generation], width: int) -> Table:
    """Names whole, for 'promote' takes them, and states; of the other columns those that the terminal has room for."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table

    columns = {
        "state": [_state(each) for each in found],
        "created (UTC)": [each.created[:19].replace("T", " ") for each in found],
        "documents": ["-" if each.documents is None else f"{each.documents:,}" for each in found],
        "size": [sized(each.bytes) for each in found],
        "source": [each.source for each in found],
        "made with": [_made(each) for each in found],
    }
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("generation", overflow="fold")
    left = width - 2 - max(len(each.index) for each in found)
    cells = [[each.index] for each in found]
    for name, column in columns.items():
        wide = max(map(cell_len, (name, *column))) + 1
        if wide > left and name != "state":
            continue
        left -= wide
        table.add_column(name, justify="right" if name in {"documents", "size"} else "left", no_wrap=True)
        for row, cell in zip(cells, column, strict=True):
            row.append(cell)
    for row in cells:
        table.add_row(*row)
    return table


def _state(each: Generation) -> str:
    if each.unreadable:
        return "live, unreadable" if each.live else "unreadable"
    if each.closed:
        return "live, closed" if each.live else "closed"
    return "live" if each.live else "unfinished" if not each.complete else "refused by its gate" if each.missed else ""


def _made(each: Generation) -> str:
    """Signals, and what else of its 'index' command makes other documents of the same source."""
    options = {
        "saturation": each.signals.get("weights", {}).get("saturation"),
        "passage-size": each.passages.get("size"),
        "neighbours": each.neighbours,
    }
    return " ".join([", ".join(each.signals), *(f"--{name} {value}" for name, value in options.items() if value)])
