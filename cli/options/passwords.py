"""Passwords on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.errors import UsageError

if TYPE_CHECKING:
    import click


def only_asked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a password on the command line, as the callback of an option.

    Raises:
        UsageError: The value is something else than "-".
    """
    del ctx
    if value in (None, "-"):
        return value
    flag, variable = param.opts[0], (param.name or "").upper()
    raise UsageError(
        "A password on the command line is visible to other users of this machine, in the list of processes.",
        f"Use {flag} - (asks), {flag}-file FILE or $TERMWEAVE_{variable}.",
    )
