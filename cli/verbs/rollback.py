"""`termweave rollback`: make the previous generation of an index live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.shared_options import verb
from termweave.cli.verbs.promote import report

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("rollback", connects=True)
@click.argument("name")
def command(*, name: str, settings: Settings, out: Output) -> None:
    """Make the previous generation live: the newest finished generation of NAME that is older than the live one.

    A generation that its gate refused, or that an earlier rollback left, is passed over; 'termweave promote' can make it live.

    \b
    Examples:
      termweave rollback docs
    """
    from termweave import engine
    from termweave.indexer.generations import publication

    server = engine.connect(settings)
    generation = publication.previous(server, name)
    report(server, name, generation, publication.promote(server, name, generation, "rollback"), out)
