"""`termweave audit`: who published, rolled back or deleted what, when and from where."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli.options.number_types import IntRange
from termweave.cli.options.option_groups import verb
from termweave.cli.options.shared_options import connection_options, output_options

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.cli.common.output import Output
    from termweave.indexer.generations.audit import AuditLine
    from termweave.settings import Settings


@verb("audit")
@click.argument("name", required=False)
@click.option("-n", "--lines", "count", type=IntRange(1, 10_000), default=20, show_default=True, help="Number of lines.")
@output_options
@connection_options
def command(*, name: str | None, count: int, settings: Settings, out: Output) -> None:
    """Show the audit trail of NAME, or of all names, newest first.

    Every publication, promotion, rollback, update in place and deletion by termweave leaves a line in the hidden index
    termweave-audit. --json also shows the program, its process and the version of termweave.

    \b
    Examples:
      termweave audit docs
      termweave audit -n 100 --json
    """
    from termweave import engine
    from termweave.indexer.generations import audit

    lines = audit.read(engine.connect(settings), name, count)
    data = {"schema": "termweave.audit/1", "name": name, "lines": [asdict(each) for each in lines]}
    empty = f"The audit trail has no line{f' about {name}' if name else ''}."
    out.emit(data, lambda: _table(lines) if lines else empty)


def _table(lines: list[AuditLine]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("when (UTC)", "name", "what", "who", "from", box=box.SIMPLE_HEAD, padding=0)
    for line in lines:
        who = f"{line.user} ({line.os_user})" if line.user else line.os_user
        table.add_row(line.at[:19].replace("T", " "), line.name, _what(line), who, line.host)
    return table


def _what(line: AuditLine) -> str:
    """The act in words, with the generations that it concerns."""
    if line.act == "delete generations":
        return f"{line.act}: {', '.join(line.deleted)}"
    if line.act in {"update", "delete documents"}:
        return f"{line.act}: {line.documents:,} in {line.after}"
    return f"{line.act}: {line.before or 'nothing'} -> {line.after}"
