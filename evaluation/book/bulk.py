"""`_bulk` requests of a book: their lines, and what their answers say."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError

if TYPE_CHECKING:
    from collections.abc import Sequence


def lines(entries: Sequence[dict[str, Any]]) -> bytes:
    """The body of a request: each action and each document on a line."""
    import orjson  # noqa: PLC0415 - only where something is written

    return b"".join(orjson.dumps(entry) + b"\n" for entry in entries)


def check(answer: dict[str, Any], what: str) -> None:
    """Refuse the answer to a `_bulk` request in which an entry failed; one that is there already did not.

    Raises:
        EngineResponseError: It says why the first one failed.
    """
    outcomes = [outcome for item in answer["items"] for outcome in item.values()]
    wrong = [each for each in outcomes if each["status"] >= HTTPStatus.BAD_REQUEST and each["status"] != HTTPStatus.CONFLICT]
    if wrong:
        reason = f"{what} of the book were refused: {(wrong[0].get('error') or {}).get('reason', 'no reason given')}"
        lacks = "The role of this user lacks a permission that docs/permissions.md lists."
        hint = lacks if wrong[0]["status"] == HTTPStatus.FORBIDDEN else "Do it again."
        raise EngineResponseError(wrong[0]["status"], reason, answer, hint=hint)
