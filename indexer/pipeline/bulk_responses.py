"""Read the server's responses to `_bulk`: each document is acknowledged, refused or to be sent again, or the sending ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine.client.server_errors import block_hint, known_status
from termweave.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.engine import EngineResponseError

#: Statuses of an overloaded or unavailable server: the same document may be taken later.
LATER = frozenset({429, 500, 502, 503, 504})
#: Statuses of a document that is itself the problem.
_OWN_FAULT = frozenset({400, 413})
#: In the reason of a 429 (OpenSearch 3.6.0): bytes of the request, and bytes of all requests that the server takes at a time.
_PRESSURE = re.compile(r"operation_bytes=(\d+), max_\w+_bytes=(\d+)")
LATER_HINT = "See its log, and lower --workers. Run the command again: it resumes."


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One document on its way to the server.

    Attributes:
        id: Source id.
        lines: Action and body as NDJSON, each with its newline.
        digest: Digest of its encoding, for the ledger.
    """

    id: str
    lines: bytes
    digest: int


@dataclass
class Outcome:
    """The result of one request for its documents.

    Attributes:
        acknowledged: Documents that the server has: (id, digest).
        refused: Documents that it will never take: (id, reason).
        again: Documents to send again.
        error: Why they must be sent again; None if there are none.
        fatal: The error that ends the sending; None if there is none.
        closed: Whether the generation, or the alias for writing to it, is gone.
    """

    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    again: list[BulkItem] = field(default_factory=list)
    error: EngineError | None = None
    fatal: BaseException | None = None
    closed: bool = False

    def check(self) -> None:
        """Raise the error that ends the sending, if there is one."""
        if self.fatal is not None:
            raise self.fatal


def outcome_of(batch: Sequence[BulkItem], answer: Any, index: str) -> Outcome:
    """Read the response to a batch.

    Args:
        batch: The documents that were sent.
        answer: The response.
        index: The generation, for messages.

    Raises:
        EngineError: The response does not have one entry for each document.
    """
    if len(answer.get("items", ())) != len(batch):
        raise EngineError("The response to _bulk is not one of OpenSearch.", "Look for a proxy between that changes responses.")
    outcome = Outcome()
    for item, entry in zip(batch, answer["items"], strict=True):
        (result,) = entry.values()
        status = known_status(result["status"], reason := reason_of(result))
        if status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.CONFLICT:  # a conflict: the document is there
            outcome.acknowledged.append((item.id, item.digest))
        elif status in LATER:
            outcome.again.append(item)
            outcome.error = _temporary(status, reason, index)
        elif status in _OWN_FAULT:
            outcome.refused.append((item.id, reason))
        elif status == HTTPStatus.NOT_FOUND:
            outcome.closed = True
            outcome.fatal = EngineError(
                f"{index} was deleted while it was being built.", "Run 'termweave index' again: it begins anew."
            )
        else:
            outcome.fatal = EngineError(f"The engine takes no documents: {reason} (status {status}).", _hint(reason))
    return outcome


def exceeded_limit(error: EngineResponseError) -> str:
    """The server's size limit that a request exceeds by itself, whatever else the server has to do; "" if there is none."""
    if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "http.max_content_length"
    sizes = _PRESSURE.search(error.reason) if error.status == HTTPStatus.TOO_MANY_REQUESTS else None
    return "indexing_pressure.memory.limit" if sizes and int(sizes[1]) > int(sizes[2]) else ""


def _temporary(status: int, reason: str, index: str) -> EngineError:
    """The error that ends sending if a rejected document is still rejected when the patience is used up."""
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return EngineError(
            f"The engine cannot write to {index}: {reason}.",
            "A shard is missing: GET /_cluster/allocation/explain says why. When it is back, run the command again: it resumes.",
        )
    return EngineError(f"The engine keeps rejecting documents: {reason}.", _hint(reason) if block_hint(reason) else LATER_HINT)


def _hint(reason: str) -> str:
    return f"{block_hint(reason)} Run the command again when that is fixed: it resumes.".lstrip()


def reason_of(result: dict[str, Any]) -> str:
    """Return why the server did not carry out an action of `_bulk`, with the cause that it names."""
    error = result.get("error") or {}
    cause = error.get("caused_by") or {}
    return ": ".join(part for part in (error.get("reason"), cause.get("reason")) if part) or f"status {result['status']}"
