"""How signals, readers, encoders, rerankers and training methods are found: by entry point, so that another package can add one."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from termweave.errors import UsageError

Group = Literal["signals", "readers", "encoders", "rerankers", "methods"]


@cache
def _every() -> Any:
    """The entry points of all installed packages, whose files are read once; typed otherwise before Python 3.12."""
    return entry_points()


@cache
def names(group: Group) -> tuple[str, ...]:
    """The names registered in a group, sorted."""
    return tuple(sorted(_every().select(group=f"termweave.{group}").names))


@cache
def load(group: Group, name: str) -> Any:
    """The object registered under a name.

    Raises:
        UsageError: No such name, or the package that owns it does not import.
    """
    for point in _every().select(group=f"termweave.{group}", name=name):
        try:
            return point.load()
        except ImportError as error:
            raise UsageError(
                f"The {group[:-1]} {name!r} cannot be loaded: {error}.",
                f"Reinstall the package {point.value.split(':')[0]!r} comes from.",
            ) from error
    raise UsageError(f"There is no {group[:-1]} named {name!r}.", f"Known: {', '.join(names(group)) or 'none'}.")
