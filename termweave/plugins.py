"""Find signals, readers, encoders, rerankers, training methods, models and features of a search by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Literal

from termweave.errors import TermweaveError, UsageError
from termweave.support.messages import first_line

Group = Literal["signals", "readers", "encoders", "rerankers", "methods", "models", "search_features"]


@cache
def installed() -> Any:
    """The entry points of all installed packages, read once. Their type differs before Python 3.12."""
    return entry_points()


@cache
def names(group: Group) -> tuple[str, ...]:
    """The sorted names that are registered in a group."""
    return tuple(sorted(modules(group)))


@cache
def modules(group: Group) -> dict[str, str]:
    """Name -> module, for all names that are registered in a group. No module is imported."""
    return {point.name: point.module for point in installed().select(group=f"termweave.{group}")}


@cache
def load(group: Group, name: str) -> Any:
    """Load the object that is registered under a name.

    Raises:
        UsageError: The name is not registered, or its package cannot be imported.
    """
    for point in _points(group, name):
        try:
            return point.load()
        except (ImportError, AttributeError, SyntaxError) as error:
            hint = f"Reinstall the package that contains {point.module!r}."
            raise UsageError(f"The {_one(group)} {name!r} cannot be loaded: {first_line(error)}.", hint) from error
    raise UsageError(f"There is no {_one(group)} named {name!r}.", f"Known: {', '.join(names(group)) or 'none'}.")


@contextmanager
def answerable(group: Group, name: str) -> Iterator[None]:
    """Run a plugin's code in a `with` statement; if it raises an unexpected exception, an error names the plugin.

    Args:
        group: Group of the plugin.
        name: Name under which the plugin is registered.

    Raises:
        TermweaveError: A plugin of another package raised an exception. Exceptions of termweave's own plugins, and of objects that are
            not registered, are not changed.
    """
    if name not in names(group):  # an object that the caller gave: the exception is theirs
        yield
        return
    with blamed(f"The {_one(group)} {name!r}", lambda: _points(group, name)[name].value):
        yield


@contextmanager
def blamed(subject: str, where: Callable[[], str]) -> Iterator[None]:
    """Run code of a plugin whose registered name is not known, as `answerable` does; an unexpected exception becomes an error with its module.

    Args:
        subject: Subject of the message: "The reader of CSV files".
        where: Function that returns the plugin's ``module:object``; called only after an exception.

    Raises:
        TermweaveError: As in `answerable`.
    """
    try:
        yield
    except (TermweaveError, MemoryError, OSError):  # errors of the system are not the plugin's fault
        raise
    except Exception as error:
        if where().startswith("termweave."):
            raise
        hint = "Report the error to the authors of that package, and use another one until it is corrected."
        message = f"{subject} of another package, {where()}, ended with {type(error).__name__}: {first_line(error)}."
        raise TermweaveError(message, hint) from error


def _points(group: Group, name: str) -> EntryPoints:
    points: EntryPoints = installed().select(group=f"termweave.{group}", name=name)
    return points


def _one(group: Group) -> str:
    """The singular of a group's name, for messages: "search feature"."""
    return group[:-1].replace("_", " ")
