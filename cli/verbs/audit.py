"""`termweave audit`: who published, rolled back or deleted what, when and from where."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli.common.fitted_table import fitted_table
from termweave.cli.options.number_types import IntRange
from termweave.cli.options.shared_options import verb

if TYPE_CHECKING:
    from termweave.catalog.audit import AuditLine
    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@verb("audit", connects=True)
@click.argument("name", required=False)
@click.option("-n", "--lines", "count", type=IntRange(1, 10_000), default=20, show_default=True, help="Number of lines.")
def command(*, name: str | None, count: int, settings: Settings, out: Output) -> None:
    """Show the audit trail of NAME, or of all names, newest first.

    Every publication, promotion, rollback, update in place, enrichment, change of the profile in force and deletion by termweave leaves
    a line in the hidden index termweave-audit. --json also shows the program, its process and the version of termweave.

    \b
    Examples:
      termweave audit docs
      termweave audit -n 100 --json
    """
    from termweave import engine
    from termweave.catalog import audit

    lines = audit.read(engine.connect(settings), name, count)
    data = {"schema": "termweave.audit/1", "name": name, "lines": [asdict(each) for each in lines]}
    empty = f"The audit trail has no line{f' about {name}' if name else ''}."
    columns = {
        "when (UTC)": [line.at[:19].replace("T", " ") for line in lines],
        "name": [line.name for line in lines],
        "what": [_what(line) for line in lines],
        "who": [f"{line.user} ({line.os_user})" if line.user else line.os_user for line in lines],
        "from": [line.host for line in lines],
    }
    out.emit(data, lambda: fitted_table(columns, out.console().width, kept={"name", "what"}) if lines else empty)


def _what(line: AuditLine) -> str:
    """The act in words, with the generations that it concerns."""
    if line.act == "delete generations":
        return f"{line.act}: {', '.join(line.deleted)}"
    if line.act in {"update", "delete documents", "enrich", "remove fields"}:
        return f"{line.act}: {line.documents:,} in {line.after}"
    none = "hybrid" if line.act == "profile" else "nothing"
    return f"{line.act}: {line.before or none} -> {line.after or none}"
