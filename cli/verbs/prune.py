"""`termweave prune`: delete old generations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._numbers import IntRange
from termweave.cli._options import CONTEXT, confirm, connection_options, output_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.command("prune", context_settings=CONTEXT, short_help="Delete old generations.")
@click.argument("name")
@click.option(
    "--keep",
    type=IntRange(1),
    default=2,
    show_default=True,
    help="How many of the newest to keep; the live one is always kept.",
)
@click.option("--unfinished", is_flag=True, help="Also those that were never finished; no build of NAME may be running.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
@connection_options
def command(*, name: str, keep: int, unfinished: bool, yes: bool, settings: Settings, out: Output) -> None:
    """Delete generations of NAME that are neither live nor among the newest, and those that their gates refused.

    Unfinished ones are left alone: their 'termweave index' command goes on with them, or throws them away with --fresh. For one
    whose ledger was lost, or lies on a host that is gone, there is --unfinished.

    \b
    Examples:
      termweave prune docs --keep 2
      termweave prune docs --keep 1 --yes --json
      termweave prune docs --unfinished
    """
    from contextlib import nullcontext

    from termweave import engine
    from termweave.indexer import ledgers, pruning
    from termweave.words import counted

    server = engine.connect(settings)
    old = pruning.prunable(server, name, keep, unfinished=unfinished)
    if old and not yes:
        for each in old:
            state = ", refused by its gate" if each.missed else "" if each.complete else ", unfinished"
            click.echo(f"{each.index}  {counted(each.documents or 0, 'document')}, {each.created}{state}", err=True)
        confirm(f"Delete {'it' if len(old) == 1 else f'these {len(old)}'}?")
    with ledgers.lease(server, name) if unfinished else nullcontext():
        deleted = pruning.prune(server, name, old)
    for each in old:
        if each.index not in deleted:
            out.say(f"{each.index} is live by now: it is kept.")
    data = {"schema": "termweave.prune/1", "name": name, "deleted": deleted}
    out.emit(data, f"{name}: {counted(len(deleted), 'generation')} deleted.")
