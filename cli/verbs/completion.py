"""`termweave completion`: complete verbs and options with the Tab key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from termweave.cli.options.shared_options import verb

if TYPE_CHECKING:
    from termweave.cli.common.output import Output

#: Shell -> the file that it reads when it starts, below the home folder; fish reads a folder of completions instead.
_STARTUP = {"bash": ".bashrc", "zsh": ".zshrc"}


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.option(
    "--install", is_flag=True, help="Set it up for this user: write the script, and a line that loads it where the shell starts."
)
def command(*, shell: str | None, install: bool, out: Output) -> None:
    """Print the script that completes verbs and options in SHELL; with --install, set it up. SHELL is that of $SHELL by default.

    For fish the script goes to the folder of completions. For bash and zsh it goes to the folder of models and data, and one line is
    added to ~/.bashrc or ~/.zshrc. Doing it again changes nothing.

    \b
    Examples:
      termweave completion --install
      termweave completion zsh > _termweave
    """
    from click.shell_completion import get_completion_class

    from termweave.cli import cli

    name = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(name)
    if made is None or name not in {*_STARTUP, "fish"}:
        reason = f"The shell {name!r} is unknown." if name else "$SHELL names no shell."
        raise click.UsageError(f"{reason} Name bash, zsh or fish.")
    # Not `source()`: for bash that runs the shell to read its version.
    script = made.source_template % made(cli, {}, "termweave", "_TERMWEAVE_COMPLETE").source_vars()
    if not install:
        out.emit({"schema": "termweave.completion/1", "shell": name, "script": script, "files": []}, script)
        return
    files = [str(path) for path in _install(name, script)]
    data = {"schema": "termweave.completion/1", "shell": name, "script": script, "files": files}
    out.emit(data, f"Completion for {name} is installed ({', '.join(files)}). It works in shells that start from now on.")


def _install(shell: str, script: str) -> list[Path]:
    """Write the script and have the shell load it; returns the files that were written or changed."""
    from termweave.support import paths

    if shell == "fish":
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fish" / "completions"
        target = folder / "termweave.fish"
    else:
        folder = paths.models().parent
        target = folder / f"completion.{shell}"
    folder.mkdir(parents=True, exist_ok=True)
    target.write_text(script, encoding="utf-8")
    if shell == "fish":
        return [target]
    startup = Path.home() / _STARTUP[shell]
    line = f'[ -f "{target}" ] && . "{target}"  # termweave completion'
    before = startup.read_text(encoding="utf-8", errors="surrogateescape") if startup.exists() else ""
    if line not in before.splitlines():
        gap = "" if not before or before.endswith("\n") else "\n"
        with startup.open("a", encoding="utf-8") as file:
            file.write(f"{gap}{line}\n")
    return [target, startup]
