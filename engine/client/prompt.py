"""Questions for secrets on the terminal."""

from __future__ import annotations

import getpass
import sys
import warnings
from functools import cache

from termweave.errors import UsageError


def possible() -> bool:
    """Whether somebody sits at the terminal that could be asked without having said so."""
    return sys.stdin is not None and sys.stdin.isatty()


@cache
def secret(question: str, instead: str) -> str:
    """Ask for a secret without showing what is typed, once per process.

    Args:
        question: What the terminal shows.
        instead: What to do where there is no terminal.

    Raises:
        UsageError: There is no terminal.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it would show the secret while it is typed
        try:
            return getpass.getpass(question)
        except (getpass.GetPassWarning, EOFError):
            raise UsageError("There is no terminal to ask for the password.", instead) from None
