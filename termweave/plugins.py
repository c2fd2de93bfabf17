"""How signals, readers, encoders, rerankers and training methods are found: by entry point, so that another package can add one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from termweave.errors import TermweaveError, UsageError
from termweave.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoints

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
    for point in _points(group, name):
        try:
            return point.load()
        except (ImportError, AttributeError, SyntaxError) as error:
            raise UsageError(
                f"The {group[:-1]} {name!r} cannot be loaded: {first_line(error)}.",
                f"Reinstall the package {point.module!r} comes from.",
            ) from error
    raise UsageError(f"There is no {group[:-1]} named {name!r}.", f"Known: {', '.join(names(group)) or 'none'}.")


@contextmanager
def answerable(group: Group, name: str) -> Iterator[None]:
    """Around calls of what another package registered: what goes wrong in there is that package's fault, and is said to be.

    Raises:
        TermweaveError: It raised something; termweave's own errors, and faults of its own plugins, pass.
    """
    with blamed(f"The {group[:-1]} {name!r}", lambda: _points(group, name)[name].value):
        yield


@contextmanager
def blamed(what: str, where: Callable[[], str]) -> Iterator[None]:
    """Likewise, where the name that it was registered under is not known any more.

    Args:
        what: The part, as the sentence begins.
        where: Its ``module:object``, asked for when something has gone wrong.
    """
    try:
        yield
    except (TermweaveError, MemoryError, OSError):  # what the system says is nobody's fault
        raise
    except Exception as error:
        if where().startswith("termweave."):
            raise
        raise TermweaveError(
            f"{what} of another package, {where()}, ended with {type(error).__name__}: {first_line(error)}.",
            "Do without it, and tell those who made it.",
        ) from error


def _points(group: Group, name: str) -> EntryPoints:
    found: EntryPoints = _every().select(group=f"termweave.{group}", name=name)
    return found
