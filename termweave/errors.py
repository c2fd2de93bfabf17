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

from typing import ClassVar


class TermweaveError(Exception):
    """An error that a user can act on.

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
        return f"{self.message} {self.hint}".strip()


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
