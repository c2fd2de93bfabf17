"""`termweave promote`: make another generation of an index live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.shared_options import verb

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.engine import Engine
    from termweave.settings import Settings


@verb("promote", connects=True)
@click.argument("name")
@click.argument("generation")
def command(*, name: str, generation: str, settings: Settings, out: Output) -> None:
    """Make GENERATION live: point the alias NAME at it, in one atomic step. A generation that its gate refused is accepted, too.

    \b
    Examples:
      termweave generations docs
      termweave promote docs docs-20260101120000-1a2b3c4d
    """
    from termweave import engine
    from termweave.indexer.generations import publication

    server = engine.connect(settings)
    report(server, name, generation, publication.promote(server, name, generation), out)


def report(server: Engine, name: str, generation: str, before: str | None, out: Output) -> None:
    """Print which generation is live now, which was before, and whether searches use another profile now."""
    from termweave.indexer.generations import publication

    if remark := publication.profile_remark(server, name, before, generation):
        out.warn(remark)
    data: answers.Promote = {"schema": "termweave.promote/1", "name": name, "live": generation, "before": before}
    out.emit(data, f"{name}: {generation} is live{f'; before it was {before}' if before and before != generation else ''}.")
