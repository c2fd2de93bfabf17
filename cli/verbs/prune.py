"""`termweave prune`: delete old generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.number_types import IntRange
from termweave.cli.options.shared_options import confirm, verb, yes_option

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("prune", connects=True)
@click.argument("name")
@click.option(
    "--keep",
    type=IntRange(1),
    default=2,
    show_default=True,
    help="Number of newest generations to keep; the live one is always kept.",
)
@click.option("--unfinished", is_flag=True, help="Also delete unfinished generations; no build of NAME may be running.")
@yes_option
def command(*, name: str, keep: int, unfinished: bool, yes: bool, settings: Settings, out: Output) -> None:
    """Delete generations of NAME that are neither live nor among the newest, and those that their gates refused.

    Unfinished generations are kept: repeat their 'termweave index' command to finish them, or add --fresh to it to delete them. If
    the ledger of one was lost, or is on a host that no longer exists, use --unfinished.

    \b
    Examples:
      termweave prune docs --keep 2
      termweave prune docs --keep 1 --yes --json
      termweave prune docs --unfinished
    """
    from contextlib import nullcontext

    from termweave import engine
    from termweave.indexer.generations import deletion, listing
    from termweave.indexer.ledger import storage
    from termweave.support.messages import counted, printable

    server = engine.connect(settings)
    old = deletion.prunable(server, name, keep, unfinished=unfinished)
    if old and not yes:
        for generation in old:
            state = f", {each}" if (each := listing.state_of(generation)) else ""
            documents = counted(generation.documents or 0, "document")
            click.echo(printable(f"{generation.index}  {documents}, {generation.created}{state}"), err=True)
        confirm(f"Delete {'it' if len(old) == 1 else f'these {len(old)}'}?")
    with storage.lease(server, name) if unfinished else nullcontext():
        deleted = deletion.prune(server, name, old)
    for generation in old:
        if generation.index not in deleted:
            out.say(f"{generation.index} has become live meanwhile: it is kept.")
    data: answers.Prune = {"schema": "termweave.prune/1", "name": name, "deleted": deleted}
    out.emit(data, f"{name}: {counted(len(deleted), 'generation')} deleted.")
