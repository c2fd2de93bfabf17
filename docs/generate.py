"""Write `docs/commands.md` from the help of every command. `make docs` runs this; a test compares the page with the help."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from termweave.cli import VERBS, cli

PAGE = Path(__file__).parent / "commands.md"


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


if __name__ == "__main__":
    page = commands()
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.read_text(encoding="utf-8") == page
            else "docs/commands.md is older than the commands' help. Run 'make docs'."
        )
    PAGE.write_text(page, encoding="utf-8")
