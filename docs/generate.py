"""Write `docs/commands.md` from the help of every command, and the OpenAPI document of `termweave serve` from `docs/schemas`.

`make docs` runs this; tests compare both with their sources.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from termweave.cli import VERBS, cli
from termweave.ui.api import openapi

PAGE = Path(__file__).parent / "commands.md"
SCHEMAS = Path(__file__).parent / "schemas"
OPENAPI = Path(__file__).parents[1] / "ui" / "static" / "openapi.json"


def commands() -> str:
    """Return the page: every verb with its help, and subcommands after their group."""
    context = click.Context(cli, info_name="termweave", max_content_width=110)
    parts = ["# Commands\n\n`make docs` writes this page from the help of the commands.\n", _section("termweave", cli, context)]
    for verb in VERBS:
        command = cli.get_command(context, verb)
        if command is None:
            raise SystemExit(f"the verb {verb} has no command")
        below = click.Context(command, info_name=verb, parent=context, max_content_width=110)
        parts.append(_section(f"termweave {verb}", command, below))
        if isinstance(command, click.Group):
            for name in command.list_commands(below):
                inner = command.get_command(below, name)
                if inner is not None:
                    parts.append(
                        _section(
                            f"termweave {verb} {name}",
                            inner,
                            click.Context(inner, info_name=name, parent=below, max_content_width=110),
                        )
                    )
    return "\n".join(parts)


def _section(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```\n{command.get_help(context).rstrip()}\n```\n"


def described() -> str:
    """Return the OpenAPI document."""
    schemas = {name: json.loads((SCHEMAS / f"{name}.1.json").read_text(encoding="utf-8")) for name in openapi.ANSWERS.values()}
    return json.dumps(openapi.document(schemas), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    made = {PAGE: commands(), OPENAPI: described()}
    if "--check" in sys.argv:
        old = [path.name for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        sys.exit(f"{', '.join(old)}: older than the commands' help or the schemas. Run 'make docs'." if old else 0)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
