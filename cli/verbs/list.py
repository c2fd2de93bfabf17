"""`termweave list`: every index of a server, one line each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from termweave.cli.common.fitted_table import fitted_table
from termweave.cli.options.shared_options import verb
from termweave.support.messages import sized

if TYPE_CHECKING:
    from rich.table import Table

    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.settings import Settings

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@verb("list", connects=True)
def command(*, settings: Settings, out: Output) -> None:
    """List the indices that termweave made, with the generation that is live, its size, documents, signals, models and age.

    A narrow terminal shows the columns for which it has room; --json has them all.

    \b
    Examples:
      termweave list
      termweave list --json
    """
    from termweave import engine
    from termweave.indexer.generations.listing import summaries

    server = engine.connect(settings)
    rows = summaries(server)
    if not rows:
        out.say(f"No index at {server.url} was made by termweave. Make one: termweave index SOURCE NAME.")
    out.emit(
        {"schema": "termweave.list/1", "url": server.url, "indices": rows},
        lambda: _table(rows, out.console().width) if rows else None,
    )


def _table(rows: list[answers.ListedIndex], width: int) -> Table:
    """Format indices as a table. Columns for which there is no room are left out; --json has them all."""
    columns = {
        "name": [row["name"] for row in rows],
        "documents": ["-" if row["documents"] is None else f"{row['documents']:,}" for row in rows],
        "size": [sized(row["bytes"]) for row in rows],
        "age": [_age(row["created"]) if row["created"] else "unfinished" for row in rows],
        "signals": [", ".join(row["signals"]) for row in rows],
        "live generation": [row["generation"] or "-" for row in rows],
        "models": [", ".join(dict.fromkeys(row["models"].values())) for row in rows],
        "generations": [str(row["generations"]) for row in rows],
    }
    return fitted_table(columns, width, right={"documents", "size", "age", "generations"})


def _age(created: str) -> str:
    """How long ago a generation was made: ``3 d``, ``5 h``, ``12 min``."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()
    return next((f"{seconds / size:.0f} {unit}" for unit, size in _UNITS if seconds >= size), "now")
