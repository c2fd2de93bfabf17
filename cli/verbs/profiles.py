"""`termweave profiles`: list the tuned profiles of an index, choose the one that searches use, or delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.option_groups import verb
from termweave.cli.options.shared_options import connection_options, output_options

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.cli.common.output import Output
    from termweave.search.catalog.lineage import Lineage
    from termweave.search.catalog.profiles import Profile
    from termweave.settings import Settings


@verb("profiles")
@click.argument("name")
@click.option("--use", metavar="PROFILE", help="Let searches use this profile from now on; 'hybrid' stands for no profile.")
@click.option("--drop", metavar="PROFILE", help="Delete this profile. If searches use it, they use no profile from now on.")
@output_options
@connection_options
def command(*, name: str, use: str | None, drop: str | None, settings: Settings, out: Output) -> None:
    """List the profiles that 'termweave tune' stored with NAME, and what they gained; choose one, or delete one.

    \b
    Examples:
      termweave profiles docs
      termweave profiles docs --use tuned
      termweave profiles docs --use hybrid
      termweave profiles docs --drop tuned
    """
    from dataclasses import asdict

    from termweave import engine
    from termweave.search.catalog import lineage, profiles

    server = engine.connect(settings)
    index = lineage.resolve(server, name)
    record = lineage.read(server, index)
    if drop is not None:
        record = profiles.without(record, drop)
    if use is not None:
        record = profiles.using(record, None if use == "hybrid" else use)
    if use is not None or drop is not None:
        lineage.write(server, index, record)
    stored = [profile for title in sorted(record.profiles) if (profile := profiles.find(record, title))]
    data = {
        "schema": "termweave.profiles/1",
        "name": name,
        "in_force": record.profile,
        "profiles": [asdict(profile) for profile in stored],
    }
    out.emit(
        data, lambda: _table(stored, record) if stored else f"{name} has no profiles. Make one: termweave tune {name} DATASET."
    )


def _table(stored: list[Profile], record: Lineage) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("profile", "fusion", "reranking", "fitted on", "held out: tuned", "default", ""):
        table.add_column(column)
    for profile in stored:
        signals = ", ".join(f"{name} {share:.2f}" for name, share in profile.weights.items())
        held_out = profile.fitted.get("held_out", {})
        figures = [f"{held_out[name]:.4f}" if name in held_out else "" for name in ("tuned", "default")]
        reranking = profile.rerank.name if profile.rerank else "none"
        fitted = f"{profile.fitted.get('dataset', '')} {profile.fitted.get('measure', '')}"
        table.add_row(
            profile.name,
            f"{profile.fusion}: {signals}",
            reranking,
            fitted,
            *figures,
            "in force" if profile.name == record.profile else "",
        )
    return table
