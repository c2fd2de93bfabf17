"""Checks of arguments at the public functions. Without them a wrong argument would end in an AttributeError far inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from termweave.errors import UsageError

#: Argument -> (attribute that the right kind of object has, its name in messages, how to get one).
_KINDS = {
    "engine": ("request", "an Engine", "Write termweave.connect().engine."),
    "index": ("candidates", "an open Index", "Write termweave.connect().index(NAME)."),
    "source": ("documents", "an open source", "Write termweave.corpora.open_source(PATH)."),
    "dataset": ("qrels", "an open data set", "Write termweave.corpora.open_dataset(PATH)."),
    "options": ("skip_bad", "BuildOptions", "Write termweave.indexer.BuildOptions(...)."),
}


def check(**arguments: object) -> None:
    """Check that arguments are of the kind that their names say.

    Args:
        **arguments: Arguments under the names of `_KINDS`: ``engine=...``, ``source=...``.

    Raises:
        UsageError: An argument is of another kind.

    Example:
        >>> check(source="./docs")
        Traceback (most recent call last):
        termweave.errors.UsageError: source must be an open source, not str. Write termweave.corpora.open_source(PATH).
    """
    for name, value in arguments.items():
        member, kind, hint = _KINDS[name]
        if not hasattr(value, member):
            raise UsageError(f"{name} must be {kind}, not {type(value).__name__}.", hint)


def check_names(given: Iterable[str], record: type[Any], subject: str, others: Sequence[str] = ()) -> None:
    """Check that keyword arguments are fields of a record of options.

    Args:
        given: Names of the arguments.
        record: The dataclass of the options.
        subject: Begins the message: "A search has", "index() has".
        others: Arguments that exist besides the fields of the record.

    Raises:
        UsageError: An option does not exist; the hint has the nearest name there is, else all.
    """
    names = [*others, *(each.name for each in fields(record))]
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Options: {', '.join(names)}."
            raise UsageError(f"{subject} no option {name!r}.", hint)


def listed(texts: object) -> list[Any]:
    """The texts to encode as a list. The items themselves are not checked.

    Raises:
        UsageError: The argument is a single text, or not a list of texts.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):  # iterating a mapping would encode its keys
        given = "one text" if isinstance(texts, str) else type(texts).__name__
        raise UsageError(f"encode takes a list of texts, not {given}.", "Write encode([text]) and take the first result.")
    return list(texts)


def field_names(given: object) -> tuple[str, ...]:
    """The argument `text_fields` as a tuple.

    Raises:
        UsageError: It is one text, whose letters would be taken for names.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        shown = f"the text {given!r}" if isinstance(given, str) else type(given).__name__
        raise UsageError(f"text_fields must be a list of names, not {shown}.", f"Write text_fields=[{str(given)!r}].")
    return tuple(given)
