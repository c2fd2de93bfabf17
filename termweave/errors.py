"""The errors that a user can act on, each with an exit status that scripts can rely on.

TermweaveError                 1  the command failed
├── UsageError                 2  wrong usage: an option, a name or a path is not valid
├── InputError                 1  wrong data: broken JSON on line 7, an id that occurs twice
├── ModelError                 1  wrong model folder: a missing file, a wrong hash, a wrong output
├── EngineError                1  the engine responded with an error
│   └── EngineUnreachable      5  the engine did not respond
├── RefusedDocuments           1  the engine refused documents; the generation is not promoted
├── GateNotMet                 3  a condition of --require is not met
└── VerificationFailed         4  stored documents differ from those that were sent
"""

from __future__ import annotations

import re
from typing import ClassVar

#: Flags whose argument has another name.
_ARGUMENTS = {"from": "start", "filter": "where", "filter-json": "where", "facet": "facets", "text-field": "text_fields"}
_ARGUMENTS |= {"passage-size": "passages", "passage-stride": "passages"}
#: A command to type stays as it is.
_COMMAND = re.compile(r"('termweave [^']*'|`[^`]*`)")
#: A flag, and its value if that follows and is a placeholder, a number or a list.
_FLAG = re.compile(
    r"(?<![\w-])--?(?P<flag>[a-z][a-z0-9-]*)(?: (?P<value>[A-Z]{2,}(?![\w])|\d[\w.%]*\w|\d|[\w.]+[@:,][\w@:,./-]*\w))?"
)
_SHORT = frozenset("k")


class TermweaveError(Exception):
    """An error that a user can act on. As text it names Python's arguments; the command line prints `message` and `hint`, with flags.

    Attributes:
        message: One sentence that says what is wrong, and where.
        hint: One sentence that says what to do next; "" if the message says it.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return for_python(f"{self.message} {self.hint}".strip())


class UsageError(TermweaveError):
    """An option, a name or a path is not valid."""

    exit_status = 2


class InputError(TermweaveError):
    """The input data cannot be read."""


class ModelError(TermweaveError):
    """A model folder is incomplete, was changed, or is of the wrong kind."""


class EngineError(TermweaveError):
    """The engine responded with an error."""


class EngineUnreachable(EngineError):
    """No engine responds at the address."""

    exit_status = 5


class RefusedDocuments(TermweaveError):
    """The engine refused documents, so the generation was not promoted."""


class GateNotMet(TermweaveError):
    """A condition of --require is not met."""

    exit_status = 3


class VerificationFailed(TermweaveError):
    """Stored documents differ from those that were sent."""

    exit_status = 4


def for_python(text: str) -> str:
    """Translate a message for Python: arguments of functions stand in place of the command line's flags.

    Example:
        >>> for_python("Remove --server-fusion, or lower -k or --from.")
        'Remove server_fusion, or lower k or start.'
        >>> for_python("Add --rerank ranker@FOLDER, or use 'termweave index NAME --update'.")
        "Add rerank='ranker@FOLDER', or use 'termweave index NAME --update'."
    """
    return "".join(part if at % 2 else _FLAG.sub(_argument, part) for at, part in enumerate(_COMMAND.split(text)))


def _argument(match: re.Match[str]) -> str:
    flag, value = match["flag"], match["value"]
    if not match[0].startswith("--") and flag not in _SHORT:
        return match[0]
    name = _ARGUMENTS.get(flag, flag.replace("-", "_"))
    if value is None:
        return name
    if flag == "passage-size":
        return f"passages=Window({value}, STRIDE)"
    shown = value if value[0].isdigit() else repr(value)
    return f"{name}={shown}"
