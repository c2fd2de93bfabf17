"""What can go wrong, each with the exit status a script can rely on.

TermweaveError                 1  failed
├── UsageError                 2  wrong usage: an option, a name, a path that does not exist
├── InputError                 1  the data: broken JSON on line 7, an id twice
├── ModelError                 1  a model folder: missing file, wrong hash, wrong output
├── EngineError                1  the engine answered, with an error
│   └── EngineUnreachable      5  it did not answer
├── RefusedDocuments           1  the engine refused documents; the generation is not promoted
├── GateNotMet                 3  a --require that does not hold
└── VerificationFailed         4  what is stored is not what was sent
"""

from __future__ import annotations

from typing import ClassVar


class TermweaveError(Exception):
    """An error that a user can act on.

    Attributes:
        message: One sentence: what is wrong, and where.
        hint: One sentence: what to do next; empty where the message says it.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UsageError(TermweaveError):
    """An option, a name or a path that cannot be meant."""

    exit_status = 2


class InputError(TermweaveError):
    """The data cannot be read as what they should be."""


class ModelError(TermweaveError):
    """A model folder that is incomplete, altered or of the wrong kind."""


class EngineError(TermweaveError):
    """The engine answered with an error."""


class EngineUnreachable(EngineError):
    """No engine answers at the address."""

    exit_status = 5


class RefusedDocuments(TermweaveError):
    """The engine refused documents, so the generation was not promoted."""


class GateNotMet(TermweaveError):
    """A required figure was not reached."""

    exit_status = 3


class VerificationFailed(TermweaveError):
    """What is stored differs from what was sent."""

    exit_status = 4
