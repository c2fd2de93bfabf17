"""`termweave config show`: the current settings and where each one comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli.options.option_groups import CONTEXT
from termweave.cli.options.shared_options import verb

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.settings import Settings


@click.group("config", context_settings=CONTEXT)
def command() -> None:
    """The current settings: from flags, then TERMWEAVE_*, then termweave.toml, then defaults.

    \b
    Examples:
      termweave config show
      TERMWEAVE_URL=https://search:9200 termweave config show --json
    """


@verb("show", command, connects=True)
def show(*, settings: Settings, out: Output) -> None:
    """Print every setting with its value and where it comes from, and the folders of data, cache and ledgers.

    \b
    Examples:
      termweave config show
      termweave config show --json
    """
    from termweave.engine.embedded import folders as node_folders
    from termweave.settings import Settings as AllSettings
    from termweave.support import paths
    from termweave.support.messages import without_password

    home = node_folders.default_home()
    folders = {
        "settings": (paths.config(), "The user's termweave.toml ($XDG_CONFIG_HOME)"),
        "models": (paths.models(), "Models that are found by name ($XDG_DATA_HOME)"),
        "cache": (paths.cache(), "What can be made again: server archives, statistics ($XDG_CACHE_HOME)"),
        "state": (paths.state(), "Ledgers and faults.log ($XDG_STATE_HOME)"),
        "ledgers": (paths.state() / "ledgers", "What was sent to which index; 'index --update' and 'verify' read it"),
        "node": (node_folders.run_folder(home), "Data and logs of the embedded node: its indices"),
    }
    rows: dict[str, answers.Setting] = {}
    for name, field in AllSettings.model_fields.items():
        value = getattr(settings, name)
        shown = None if value is None else value if isinstance(value, bool | int | float) else without_password(str(value))
        rows[name] = {"value": shown, "from": settings.origin(name), "description": str(field.description)}
        if ignored := [each.origin for each in settings.ignored if each.name == name]:
            rows[name]["ignored"] = ignored
    wide = max(map(len, rows))
    lines = [
        f"{name:<{wide}} {'-' if row['value'] is None else row['value']!s:<30} {_from(row):<22} {row['description']}"
        for name, row in rows.items()
    ]
    lines += ["", "Folders ('termweave doctor' shows their sizes):"]
    lines += [f"{name:<{wide}} {path!s:<53} {description}" for name, (path, description) in folders.items()]
    places = {name: {"path": str(path), "description": description} for name, (path, description) in folders.items()}
    out.emit({"schema": "termweave.config/1", "settings": rows, "folders": places}, "\n".join(lines))


def _from(row: answers.Setting) -> str:
    """The place of a value, and the places whose value is not used."""
    return f"{row['from']} (not {', '.join(row['ignored'])})" if "ignored" in row else row["from"]
