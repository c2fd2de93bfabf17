"""Options that are lists: of ids, of names of fields, of filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def texts(name: str, what: str, entry: str, given: object) -> list[str]:
    """Return a list of texts.

    Args:
        name: Name of the option.
        what: What its entries are, for messages: "ids".
        entry: What one of them is: "The id of a document".
        given: The value.

    Raises:
        UsageError: It is not a list, or an entry is not a text.
    """
    texts = listed(name, what, given)
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise UsageError(f"{entry} is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
    return texts


def field_names(name: str) -> Callable[[object], list[str]]:
    """Return the check of a list of names of fields, which may be separated by commas, too: in Python and the API as on the command line."""

    def names(given: object) -> list[str]:
        entries = texts(name, "names", "The name of a field", given)
        return [part.strip() for entry in entries for part in entry.split(",") if part.strip()]

    return names


def listed(name: str, what: str, given: object) -> list[Any]:
    """Return a list of anything. Arguments and errors as `texts`."""
    if given is None:
        raise UsageError(f"{name} is a list, not None.", f"Leave {name} out if you do not need it.")
    if isinstance(given, str):
        raise UsageError(f"{name} is a list of {what}, not the text {given!r}.", f"Write {name}=[{given!r}].")
    if not isinstance(given, Iterable):
        raise UsageError(f"{name} is a list of {what}, not {type(given).__name__}.", f"Write {name}=[...].")
    return list(given)
