"""`termweave profiles`: the tuned profiles of an index, and which of them searches use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, connection_options, output_options

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.cli._options import Output
    from termweave.search.lineage import Lineage
    from termweave.search.profiles import Profile
    from termweave.settings import Settings


@click.command("profiles", context_settings=CONTEXT, short_help="The tuned profiles of an index.")
@click.argument("name")
@click.option("--use", metavar="PROFILE", help="Searches use this one from now on; 'hybrid': none of them.")
@click.option("--drop", metavar="PROFILE", help="Forget this one; where searches use it, they use none.")
@output_options
@connection_options
def command(*, name: str, use: str | None, drop: str | None, settings: Settings, out: Output) -> None:
    """List the profiles of NAME that 'termweave tune' has stored, with what they gained; choose one, or drop one.

    \b
    Examples:
      termweave profiles docs
      termweave profiles docs --use tuned
      termweave profiles docs --use hybrid
      termweave profiles docs --drop tuned
    """
    from dataclasses import asdict

    from termweave import engine
    from termweave.search import lineage, profiles

    server = engine.connect(settings)
    index = lineage.resolve(server, name)
    found = lineage.read(server, index)
    if drop is not None:
        found = profiles.without(found, drop)
    if use is not None:
        found = profiles.using(found, None if use == "hybrid" else use)
    if use is not None or drop is not None:
        lineage.write(server, index, found)
    every = [profile for each in sorted(found.profiles) if (profile := profiles.find(found, each))]
    data = {
        "schema": "termweave.profiles/1",
        "name": name,
        "in_force": found.profile,
        "profiles": [asdict(each) for each in every],
    }
    out.emit(
        data, lambda: _table(every, found) if every else f"{name} has no profiles: 'termweave tune {name} DATASET' makes them."
    )


def _table(every: list[Profile], found: Lineage) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("profile", "fusion", "reranking", "fitted on", "held out: tuned", "default", ""):
        table.add_column(column)
    for each in every:
        signals = ", ".join(f"{name} {share:.2f}" for name, share in each.weights.items())
        held_out = each.fitted.get("held_out", {})
        figures = [f"{held_out[name]:.4f}" if name in held_out else "" for name in ("tuned", "default")]
        reranking = "rnn" if each.reranking else "none"
        fitted = f"{each.fitted.get('dataset', '')} {each.fitted.get('measure', '')}"
        table.add_row(
            each.name, f"{each.fusion}: {signals}", reranking, fitted, *figures, "in force" if each.name == found.profile else ""
        )
    return table
