"""What the public doors let in. Python would let anything in, and an argument of another kind ends far inside, in an AttributeError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from termweave.errors import UsageError

#: Argument -> what it is known by, what it is called, and how one gets one. A part of another package is known by what it can do, too.
_KINDS = {
    "engine": ("request", "an Engine", "Write termweave.connect().engine."),
    "index": ("candidates", "an open Index", "Write termweave.connect().index(NAME)."),
    "source": ("documents", "an open source", "Write termweave.corpora.open_source(PATH)."),
    "dataset": ("qrels", "an open data set", "Write termweave.corpora.open_dataset(PATH)."),
    "options": ("skip_bad", "an Options", "Write termweave.indexer.Options(...)."),
}


def check(**arguments: object) -> None:
    """Refuse arguments that are of another kind than their names say.

    Raises:
        UsageError: One is.

    Example:
        >>> check(source="./docs")
        Traceback (most recent call last):
        termweave.errors.UsageError: source must be an open source, not str. Write termweave.corpora.open_source(PATH).
    """
    for name, value in arguments.items():
        member, kind, hint = _KINDS[name]
        if not hasattr(value, member):
            raise UsageError(f"{name} must be {kind}, not {type(value).__name__}.", hint)


def listed(texts: object) -> list[Any]:
    """What is to be encoded, as a list; what it holds is not looked at.

    Raises:
        UsageError: It is one text, or nothing that holds texts.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):  # a mapping would be taken for its keys
        given = "one text" if isinstance(texts, str) else type(texts).__name__
        raise UsageError(f"What is encoded is a list of texts, not {given}.", "Write encode([text]) and take the first.")
    return list(texts)
