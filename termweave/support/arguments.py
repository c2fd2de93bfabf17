"""Check the arguments of public functions. Without the checks a wrong argument would end in an AttributeError far inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from termweave.errors import UsageError

#: Argument -> (attribute that the right kind of object has, its name in messages, how to get one).
_KINDS = {
    "connection": ("engine", "a Connection", "Write connection=termweave.connect(ADDRESS)."),
    "engine": ("request", "an Engine", "Write termweave.connect().engine."),
    "index": ("candidates", "an open Index", "Write termweave.connect().index(NAME)."),
    "source": ("documents", "an open source", "Write termweave.corpora.open_source(PATH)."),
    "dataset": ("qrels", "an open data set", "Write termweave.corpora.open_dataset(PATH)."),
    "options": ("skip_bad", "BuildOptions", "Write termweave.indexer.BuildOptions(...)."),
}


def check(**arguments: object) -> None:
    """Check that arguments have the kind of object that belongs to their names.

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


def check_names(names: Iterable[str], record: type[Any], subject: str, others: Sequence[str] = ()) -> None:
    """Check that keyword arguments are fields of a record of options.

    Args:
        names: Names of the arguments.
        record: The dataclass of the options.
        subject: Begins the message: "A search has", "index() has".
        others: Arguments that exist besides the fields of the record.

    Raises:
        UsageError: An option does not exist; the hint has the nearest existing name, or else all names.
    """
    options = [*others, *(each.name for each in fields(record))]
    for name in names:
        if name not in options:
            near = get_close_matches(name, options, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Options: {', '.join(options)}."
            raise UsageError(f"{subject} no option {name!r}.", hint)


def listed(texts: object) -> list[Any]:
    """Return the texts to encode as a list. The items themselves are not checked.

    Raises:
        UsageError: The argument is a single text, or not a list of texts.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):  # iterating a mapping would encode its keys
        kind = "one text" if isinstance(texts, str) else type(texts).__name__
        raise UsageError(f"encode takes a list of texts, not {kind}.", "Write encode([text]) and take the first result.")
    return list(texts)


def texts(name: str, plural: str, entry: str, value: object) -> list[str]:
    """Check that a value is a list of texts, and return it as a list.

    Args:
        name: Name of the argument.
        plural: The word for several entries in messages: "ids".
        entry: The beginning of a message about one entry: "The id of a document".
        value: The value to check.

    Raises:
        UsageError: The value is not a list, or an entry is not a text.
    """
    texts = entries(name, plural, value)
    if wrong := [each for each in texts if not isinstance(each, str)]:
        raise UsageError(f"{entry} is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
    return texts


def parsed_text(parse: Callable[[str], object]) -> Callable[[Any], Any]:
    """Return a function that checks an option's value: a text that `parse` refuses is refused at once. The value is returned unchanged."""

    def checked(value: Any) -> Any:
        if isinstance(value, str) or type(value) is int:
            parse(str(value))
        return value

    return checked


def document_ids(name: str) -> Callable[[object], list[str]]:
    """Return a function that checks a list of ids of documents; `name` is the name of the argument."""
    return lambda value: texts(name, "ids", "The id of a document", value)


def field_names(name: str) -> Callable[[object], list[str]]:
    """Return a function that checks a list of names of fields and splits entries at commas, so that Python and the API take them, too."""

    def names(value: object) -> list[str]:
        listed = texts(name, "names", "The name of a field", value)
        return [part.strip() for each in listed for part in each.split(",") if part.strip()]

    return names


def entries(name: str, plural: str, value: object) -> list[Any]:
    """Check that a value is a list of anything, and return it as a list. Arguments and errors are those of `texts`."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        shown = f"the text {value!r}" if isinstance(value, str) else "None" if value is None else type(value).__name__
        hint = f"Write {name}=[{value!r}]." if isinstance(value, str) else f"Leave {name} out, or write {name}=[...]."
        raise UsageError(f"{name} is a list of {plural}, not {shown}.", hint)
    return list(value)
