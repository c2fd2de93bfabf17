"""What a failure of the engine is called, and what to do about it: from exceptions and answers to a sentence and a hint."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from termweave.errors import EngineError, EngineUnreachable
from termweave.words import clipped, readable

#: A connection that ended before the answer, or within it.
_CUT = ("RemoteDisconnected", "Connection aborted", "BadStatusLine", "Connection broken", "Response ended prematurely")
_TITLE = re.compile("<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
#: Characters of an answer without a reason that a sentence shows.
_LONGEST = 200
_BLOCK = re.compile(r"FORBIDDEN/\d+/index ([a-z-]+) \(api\)")


class EngineResponseError(EngineError):
    """The engine answered with an HTTP error.

    Attributes:
        status: HTTP status.
        reason: The innermost sentence the engine gave.
        body: The whole answer, parsed where it was JSON.
    """

    def __init__(self, status: int, reason: str, body: Any, *, request: str = "", hint: str = "") -> None:
        super().__init__(f"OpenSearch answered {status}{f' to {request}' if request else ''}: {reason.rstrip('.')}.", hint)
        self.status = status
        self.reason = reason
        self.body = body


class NotOpenSearch(EngineResponseError):
    """A web server that is no OpenSearch has no such page: that is not an index, or a document, that is missing.

    Attributes:
        status: 0 where it said 404; 200 where it answered what no OpenSearch does.
    """

    def __init__(self, url: str, request: str, body: Any, status: int = 0) -> None:
        super().__init__(status, "no OpenSearch", body, hint="Check the address.")
        self.message = f"What answers at {url} is no OpenSearch: it does not know {request}."


def said(error: Exception, url: str, request: str) -> EngineError | None:
    """What to raise for an exception of opensearch-py; None for another.

    Args:
        error: As it came.
        url: Of the server.
        request: Method and path.
    """
    from opensearchpy.exceptions import ConnectionError as NoConnection  # noqa: PLC0415 - 150 ms, and there already where it failed
    from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException  # noqa: PLC0415

    if isinstance(error, ConnectionTimeout):
        return EngineUnreachable(
            f"OpenSearch at {url} did not answer {request} in time.", "Look at its load, or give it longer with --timeout."
        )
    if isinstance(error, NoConnection):
        return _unreachable(url, error)
    return EngineError(f"{request} failed: {error}.") if isinstance(error, OpenSearchException) else None


def answered(status: int, body: Any, text: str, url: str, request: str) -> EngineResponseError:
    """What to raise for an answer that is an error.

    Args:
        status: HTTP status.
        body: The answer, parsed; None where it is no JSON.
        text: The answer as it came.
        url: Of the server.
        request: Method and path.
    """
    if status == HTTPStatus.NOT_FOUND and not _from_opensearch(body):
        return NotOpenSearch(url, request, body)
    elsewhere = "Something before it sends us elsewhere: give the address it stands for, perhaps with https://."
    hint = elsewhere if status < HTTPStatus.BAD_REQUEST else advice(status, body)
    return EngineResponseError(status, _reason(body, text), body, request=request, hint=hint)


def _unreachable(url: str, error: Exception) -> EngineUnreachable:
    """Why there is no connection to an address, as far as the client's exception tells."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return EngineUnreachable(
            f"The certificate of {url} could not be verified.",
            "Name its authority with --ca-certs, or use --insecure for a test server.",
        )
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return EngineUnreachable(f"{url} does not speak TLS.", "Write the address with http://.")
    if any(sign in text for sign in _CUT):
        return EngineUnreachable(
            f"{url} closed the connection.", "Where it speaks TLS, write the address with https://; else look at its log."
        )
    return EngineUnreachable(f"No OpenSearch answers at {url}.", "Check the address, or start one with: termweave node start.")


def _from_opensearch(body: Any) -> bool:
    """Whether a 404 is an OpenSearch's own: it says its error, which document it does not have, or (templates) ``{}``."""
    return isinstance(body, dict) and (not body or bool(body.keys() & {"error", "_index"}))


def _reason(body: Any, text: str) -> str:
    """The innermost sentence of an error: shards fail for a cause, and "all shards failed" helps nobody."""
    held = body if isinstance(body, dict) else {}
    cause = held.get("error")
    while isinstance(cause, dict):
        roots = cause.get("root_cause")
        inner = cause.get("caused_by") or (roots[0] if roots and isinstance(roots, list) else None)
        why = inner.get("reason") if isinstance(inner, dict) else None
        if why is None or why == cause.get("reason"):
            cause = cause.get("reason") or cause.get("type")
            break
        cause = inner
    return str(cause or held.get("message") or _gist(readable(text)) or "no reason given")


def _gist(text: str) -> str:
    """What the page of a proxy says, in one line: its title, or its beginning."""
    title = _TITLE.search(text)
    return clipped(" ".join((title[1] if title else text).split()), _LONGEST)


def advice(status: int, body: Any) -> str:
    """What to do about an error that the engine answered, or one of a `_msearch` held; "" where nothing general is known."""
    if status == HTTPStatus.UNAUTHORIZED:
        return "Give a --user and a --password that it knows (or $TERMWEAVE_USER and $TERMWEAVE_PASSWORD)."
    if "index_closed_exception" in str(body):
        return "Open the index again (POST /INDEX/_open), or build it anew under another name."
    if "create-index blocked" in str(body):
        return "The server's disks are nearly full: free some space; it takes indices again by itself."
    if blocked := block_hint(str(body)):
        return blocked
    if status == HTTPStatus.FORBIDDEN:
        return "The role of this user lacks a permission; the documentation lists those that termweave needs."
    return ""


def block_hint(said: str) -> str:
    """What to do about a block on an index that the engine's words name: one that a full disk set goes by itself, others do not.

    OpenSearch 2 and 3 say "FORBIDDEN/8/index write (api)" and "TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark".
    """
    if "flood-stage" in said or "read-only-allow-delete" in said or "read-only / allow delete" in said:
        return "The server's disk is full: free some space; the index opens again by itself."
    if found := _BLOCK.search(said):
        setting = f"index.blocks.{found[1].replace('-', '_')}"
        return f'Somebody set {setting} on it: PUT /INDEX/_settings with {{"{setting}": null}} takes it away.'
    return ""
