"""`termweave promote`: point a name at another of its generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("promote", context_settings=CONTEXT, short_help="Point a name at another of its generations.")
@click.argument("name")
@click.argument("generation")
@output_options
@connection_options
def command(*, name: str, generation: str, settings: Settings, out: Output) -> None:
    """Point the alias NAME at GENERATION, in one atomic step; also at one that its gate refused.

    \b
    Examples:
      termweave generations docs
      termweave promote docs docs-20260101120000-1a2b3c4d
    """
    from termweave import engine
    from termweave.indexer import generations

    before = generations.promote(engine.connect(settings), name, generation)
    report(name, generation, before, out)


def report(name: str, generation: str, before: str | None, out: Output) -> None:
    """Say what is live now."""
    data = {"schema": "termweave.promote/1", "name": name, "live": generation, "before": before}
    out.emit(data, f"{name}: {generation} is live{f'; before it was {before}' if before and before != generation else ''}.")
