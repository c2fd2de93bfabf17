"""`termweave config show`: what holds, and where from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, connection_options, output_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.settings import Settings


@click.group("config", context_settings=CONTEXT, short_help="What holds, and where from.")
def command() -> None:
    """Settings: flags, then TERMWEAVE_*, then termweave.toml, then defaults.

    \b
    Examples:
      termweave config show
      TERMWEAVE_URL=https://search:9200 termweave config show --json
    """


@command.command("show")
@output_options
@connection_options
def show(*, settings: Settings, out: Output) -> None:
    """Print every setting with its value and where it comes from.

    \b
    Examples:
      termweave config show
      termweave config show --json
    """
    from termweave.settings import Settings as Known
    from termweave.settings import origin
    from termweave.words import without_password

    rows: dict[str, dict[str, Any]] = {}
    for name, field in Known.model_fields.items():
        value = getattr(settings, name)
        shown = None if value is None else value if isinstance(value, bool | int | float) else without_password(str(value))
        rows[name] = {"value": shown, "from": origin(name, value), "description": field.description}
    lines = [
        f"{name:<12} {'-' if row['value'] is None else row['value']!s:<30} {row['from']:<22} {row['description']}"
        for name, row in rows.items()
    ]
    out.emit({"schema": "termweave.config/1", "settings": rows}, "\n".join(lines))
