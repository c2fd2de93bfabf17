"""Explain failed requests: turn exceptions and error responses into errors with one sentence and one hint."""

from __future__ import annotations

import re
import socket
import ssl
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from termweave.engine.client.transports import LARGEST, AnswerTooLarge
from termweave.errors import EngineError, EngineUnreachable
from termweave.support.messages import clipped, readable, sized

#: Texts of exceptions whose connection ended before or within the response.
_CUT = ("RemoteDisconnected", "Connection aborted", "BadStatusLine", "Connection broken", "Response ended prematurely")
#: Characters of an error page in which its title is looked for; a page can be of any length and hold anything.
_PAGE_START = 10_000
#: Characters of a response without a reason that a sentence shows.
_LONGEST = 200
#: What to do about an answer that no OpenSearch sends.
NOT_OURS = "Check the address: a proxy or another server may answer there."
#: Name of the usual server in messages.
OPENSEARCH = "OpenSearch"
_TITLE = re.compile(r"<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_BLOCK = re.compile(r"FORBIDDEN/\d+/index ([a-z-]+) \(api\)")
_STATUS_HINTS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "Give a user and a password that the server knows: $TERMWEAVE_USER and $TERMWEAVE_PASSWORD (or --user NAME --password -).",
    HTTPStatus.MISDIRECTED_REQUEST: "The server does not serve the host name in the address: write the name that it is configured for.",
    HTTPStatus.FORBIDDEN: "The role of this user lacks a permission; docs/permissions.md (docs/engines.md for Elasticsearch) lists those that termweave needs.",
}
#: Patterns in OpenSearch's errors -> what to do.
_TEXT_HINTS = {
    # nginx writes these three
    "The plain HTTP request was sent to HTTPS port": "Write the address with https://.",
    "No required SSL certificate was sent": "Give a client certificate: $TERMWEAVE_CLIENT_CERT and $TERMWEAVE_CLIENT_KEY.",
    "The SSL certificate error": (
        "The server does not accept the client certificate: it has expired, or an authority that the server does not trust signed it."
    ),
    "index_closed_exception": "Open the index again (POST /INDEX/_open), or build it anew under another name.",
    "shards open": (
        "The cluster has as many shards as it allows: raise cluster.max_shards_per_node, add a node, or remove old generations of termweave: "
        "'termweave prune NAME'."
    ),
    "Limit of total fields": "Raise index.mapping.total_fields.limit of the index: PUT /INDEX/_settings.",
    "Limit of mapping depth": "Raise index.mapping.depth.limit of the index: PUT /INDEX/_settings.",
    "pagination_depth should be": "Leave --server-fusion out, or lower --candidates to index.max_result_window of the index.",
    "index level setting": "Raise that setting of the index: PUT /INDEX/_settings.",
    "create-index blocked": "The server's disks are nearly full: free some space, and it accepts indices again by itself.",
}
_TRUSTED = "give its certificate as --ca-certs; use --insecure for a test server only."
#: OpenSSL's codes of a certificate that is not trusted -> what is wrong, and what to do. Of rare ones OpenSSL's own words are shown.
#: https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_CERTIFICATE_ERRORS = {
    10: ("has expired", "Renew the server's certificate; check the clock of this machine."),
    18: ("is self-signed", f"If you trust the server, {_TRUSTED}"),
    19: ("is signed by an authority of the server's own", f"If you trust that authority, {_TRUSTED}"),
    20: ("is signed by an unknown authority", f"If you trust that authority, {_TRUSTED}"),
    21: ("comes without those that lead to its authority", "Let the server send them, or add them to the file of --ca-certs."),
    62: ("is for another host name", "Write the address with a name that the certificate has."),
    64: ("is for another address", "Write the address with a name or an IP address that the certificate has."),
}
_MAY_ASK = "It may ask for a client certificate ($TERMWEAVE_CLIENT_CERT), or"
#: OpenSSL's names of other failures, as they stand in an exception's text -> what is wrong with the server, and what to do.
_HANDSHAKE_ERRORS = {
    "WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE": ("does not speak TLS", "Write the address with http://."),
    "UNSUPPORTED_PROTOCOL|ALERT_PROTOCOL_VERSION|VERSION_TOO_LOW|NO_SHARED_CIPHER|DH_KEY_TOO_SMALL|INSUFFICIENT_SECURITY": (
        "offers only an outdated version of TLS, or outdated encryption",
        "Let the server speak TLS 1.2 or newer with current cipher suites and keys.",
    ),
    "CERTIFICATE_REQUIRED": ("asks for a client certificate", "Give one with $TERMWEAVE_CLIENT_CERT and $TERMWEAVE_CLIENT_KEY."),
    "ALERT_(UNKNOWN_CA|ACCESS_DENIED|(BAD|UNSUPPORTED)_CERTIFICATE|CERTIFICATE_(UNKNOWN|EXPIRED|REVOKED))": (
        "does not accept the client certificate",
        "Has it expired, and is it signed by the authority that the server trusts for clients? The server's log says more.",
    ),
    "UNRECOGNIZED_NAME": (
        "serves no host of this name",
        "Write the address with the host name that the server is configured for.",
    ),
    "ALERT_HANDSHAKE_FAILURE": (
        "ended the TLS handshake",
        f"{_MAY_ASK} offer only outdated encryption; the server's log says more.",
    ),
    # the second in Python before 3.11.4
    "EOF_OCCURRED_IN_VIOLATION|CONNECTION_HAS_BEEN_CLOSED": (
        "closed the connection without saying why",
        f"{_MAY_ASK} have ended; the server's log says more.",
    ),
}
#: Seconds to wait for what a server says after a handshake.
_LISTENING = 2.0
_AWS_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
#: Patterns in AWS's errors about a request that it does not accept, in lower case -> what to do.
_AWS_HINTS = {
    "request signature we calculated does not match": (
        "Check the secret key of AWS, the region in $TERMWEAVE_AWS_SIGV4, and that no proxy changes the requests or their Host."
    ),
    "credential should be scoped to": "Give the region and the service of this address: $TERMWEAVE_AWS_SIGV4.",
    "security token included in the request is expired": "Renew the AWS credentials: their session token has expired.",
    "security token included in the request is invalid": "Check the AWS credentials: AWS does not know this key or session token.",
    "signature (expired|not yet current)": "Check the clock of this machine: AWS accepts signatures for five minutes.",
    "missing authentication token|user: anonymous is not": "Sign the requests: set $TERMWEAVE_AWS_SIGV4 to the region.",
}


#: The reason of a node that takes itself for the primary of a shard which has another one meanwhile (OpenSearch 3.6.0).
_OUTDATED = re.compile(r"primary term \[\d+\] is too old")


class EngineResponseError(EngineError):
    """The engine responded with an HTTP error.

    Attributes:
        status: HTTP status.
        reason: The innermost reason that the engine gave.
        body: The whole response, parsed where it was JSON.
        retry_after: Seconds after which the server wants to be asked again (its header ``Retry-After``); None: there is no such header.
    """

    retry_after: float | None = None

    def __init__(
        self, status: int, reason: str, body: Any, *, request: str = "", hint: str = "", product: str = OPENSEARCH
    ) -> None:
        super().__init__(f"{product} answered {status}{f' to {request}' if request else ''}: {reason.rstrip('.')}.", hint)
        self.status = status
        self.reason = reason
        self.body = body


class NotOpenSearch(EngineResponseError):
    """The server is not an OpenSearch, so its status 404 does not mean that an index or a document is missing.

    Attributes:
        status: 0 where the server responded with 404; 200 where it responded with something that OpenSearch never sends.
    """

    def __init__(self, url: str, request: str, body: Any, status: int = 0) -> None:
        super().__init__(status, "no OpenSearch", body, hint="Check the address.")
        self.message = f"The server at {url} is not an OpenSearch: it does not know {request}."


def from_exception(error: Exception, url: str, request: str, context: ssl.SSLContext | None, product: str) -> EngineError | None:
    """Make the error to raise for an exception of the client library; None: the exception does not come from the client library.

    Args:
        error: Exception that a request ended with.
        url: Address of the server.
        request: Method and path.
        context: The TLS context of the connection; None for a connection without TLS.
        product: Name of the server.
    """
    cause = error.__context__
    if isinstance(cause, AnswerTooLarge):
        return EngineError(f"{url} answered {request} with more than {sized(LARGEST)}.", NOT_OURS)
    if isinstance(cause if isinstance(cause, UnicodeDecodeError) else error, UnicodeDecodeError):
        return EngineError(f"{url} answered {request}, but not in UTF-8.", NOT_OURS)
    kinds = {kind.__name__ for kind in type(error).__mro__}  # both client libraries call their exceptions alike
    timed_out = "ConnectionTimeout" in kinds
    if timed_out and "ConnectTimeoutError" not in str(getattr(error, "errors", "")):
        hint = "Check its load, or allow more time with $TERMWEAVE_TIMEOUT."
        return EngineUnreachable(f"{product} at {url} did not answer {request} in time.", hint)
    if timed_out or "ConnectionError" in kinds:
        return _unreachable(url, error, context)
    return EngineError(f"{request} failed: {error}.") if kinds & {"OpenSearchException", "TransportError"} else None


def from_response(status: int, body: Any, text: str, url: str, request: str, product: str = OPENSEARCH) -> EngineResponseError:
    """Make the error to raise for a response with an error status.

    Args:
        status: HTTP status.
        body: The response, parsed; None where it is not JSON.
        text: The response as it was received.
        url: Address of the server.
        request: Method and path.
        product: Name of the server.
    """
    # A 404 of OpenSearch names the error, the missing document or script, or is for templates {}.
    if status == HTTPStatus.NOT_FOUND and not (
        isinstance(body, dict) and (not body or body.keys() & {"error", "_index", "found"})
    ):
        return NotOpenSearch(url, request, body)
    redirected = "A server in front of OpenSearch redirects this address: give the one it redirects to, perhaps with https://."
    hint = redirected if status < HTTPStatus.BAD_REQUEST else hint_for(status, text if body is None else body)
    reason = _reason(body, text)
    return EngineResponseError(known_status(status, reason), reason, body, request=request, hint=hint, product=product)


def known_status(status: int, reason: str) -> int:
    """The status to report for a failure: 503 in place of 500 if a node was cut off and does not know yet that it lost a shard."""
    return HTTPStatus.SERVICE_UNAVAILABLE if status == HTTPStatus.INTERNAL_SERVER_ERROR and _OUTDATED.search(reason) else status


def missing_index(error: EngineResponseError) -> str:
    """The name of the index or alias that is missing, as the engine's error says; "" for any other error."""
    cause = error.body.get("error") if isinstance(error.body, dict) else None
    if error.status != HTTPStatus.NOT_FOUND or not isinstance(cause, dict) or cause.get("type") != "index_not_found_exception":
        return ""
    name = cause.get("index")
    return name if isinstance(name, str) and "*" not in name else ""


def _unreachable(url: str, error: Exception, context: ssl.SSLContext | None) -> EngineUnreachable:
    """Make the error that explains why there is no connection to an address, as far as the client's exception tells."""
    text = str(error)
    if failure := handshake_failure(error, url, context):
        return EngineUnreachable(*failure)
    if "NameResolutionError" in text or "Failed to resolve" in text:
        return EngineUnreachable(f"The host name in {url} is not known.", "Check the address and the network.")
    if "ConnectTimeoutError" in f"{text} {getattr(error, 'errors', '')}":
        hint = "Check the address, a firewall between, or allow more time with $TERMWEAVE_TIMEOUT."
        return EngineUnreachable(f"{url} did not accept a connection in time.", hint)
    if any(sign in text for sign in _CUT):
        hint = "If the server speaks TLS, write the address with https://; else look at the server's log."
        return EngineUnreachable(f"{url} closed the connection.", hint)
    return EngineUnreachable(f"No OpenSearch answers at {url}.", "Check the address, or start one with: termweave node start.")


def handshake_failure(error: BaseException, url: str, context: ssl.SSLContext | None) -> tuple[str, str] | None:
    """Explain a failed TLS handshake.

    Args:
        error: The exception of the client library; OpenSSL's exception is looked for among its causes and arguments.
        url: The server's address, for the sentence.
        context: The TLS context of the connection; None for a connection without TLS.

    Returns:
        ``(what is wrong, what to do)``; None: the failure has nothing to do with TLS.
    """
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) and context is not None:
        cause = _said_to_a_listener(url, context) or cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        other = f"was refused ({cause.verify_message})"
        wrong, hint = _CERTIFICATE_ERRORS.get(
            cause.verify_code, (other, "Correct the certificate; use --insecure for a test server only.")
        )
        return f"The certificate of {url} could not be verified: it {wrong}.", hint
    text = f"{cause} {error}".upper().replace(" ", "_")
    return next(((f"{url} {wrong}.", hint) for names, (wrong, hint) in _HANDSHAKE_ERRORS.items() if re.search(names, text)), None)


def _said_to_a_listener(url: str, context: ssl.SSLContext) -> ssl.SSLError | None:
    """Connect to the server as a client that sends nothing, and return the TLS error that the server sends; None: it sends none.

    In TLS 1.3 a server checks the client certificate after the client's side of the handshake. A client that is sending its request at that
    moment loses the server's message with the connection.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), _LISTENING) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.recv(1)
    except OSError as error:  # others: it waits for a request, or is away
        return error if isinstance(error, ssl.SSLError) else None
    return None


def _tls_error(error: BaseException, depth: int = 9) -> ssl.SSLError | None:
    """Find OpenSSL's exception among the arguments and causes of an exception of urllib3 or opensearch-py; None: there is none."""
    if isinstance(error, ssl.SSLError):
        return error
    inner = (*error.args, error.__cause__, error.__context__, getattr(error, "reason", None)) if depth else ()
    errors = (_tls_error(each, depth - 1) for each in inner if isinstance(each, BaseException))
    return next(filter(None, errors), None)


def _reason(body: Any, text: str) -> str:
    """The innermost reason in an error response: "all shards failed" alone does not help, the cause of the shards' failure does."""
    fields = body if isinstance(body, dict) else {}
    cause = fields.get("error") or _shard_failure(fields)
    while isinstance(cause, dict):
        roots = cause.get("root_cause")
        inner = cause.get("caused_by") or (roots[0] if roots and isinstance(roots, list) else None)
        reason = inner.get("reason") if isinstance(inner, dict) else None
        if reason is None or reason == cause.get("reason"):
            cause = cause.get("reason") or cause.get("type")
            break
        cause = inner
    message = fields.get("message") or fields.get("Message")  # AWS writes both
    return str(cause or message or _summary(readable(text)) or "no reason given")


def _shard_failure(fields: dict[str, Any]) -> Any:
    """The first shard's failure in an answer without an error of its own, such as that of `_refresh`; None: no shard failed."""
    shards = fields.get("_shards")
    failures = shards.get("failures") if isinstance(shards, dict) else None
    first = failures[0] if isinstance(failures, list) and failures else None
    return first.get("reason") if isinstance(first, dict) else None


def _summary(page: str) -> str:
    """Sum up a proxy's error page in one line: its title, or else its beginning."""
    title = _TITLE.search(page[:_PAGE_START])
    return clipped(" ".join((title[1] if title else page[:_PAGE_START]).split()), _LONGEST)


def hint_for(status: int, body: Any) -> str:
    """Say what to do about an error of the engine, or of one search of an `_msearch`; "": no general advice is known.

    Args:
        status: HTTP status.
        body: The parsed response, or the text of an error page.
    """
    text = str(body)
    if status in _AWS_STATUSES and (hint := _first_hint(_AWS_HINTS, text.lower())):
        return hint
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.MISDIRECTED_REQUEST}:
        return _STATUS_HINTS[status]
    return _first_hint(_TEXT_HINTS, text) or block_hint(text) or _STATUS_HINTS.get(status, "")


def _first_hint(hints: dict[str, str], text: str) -> str:
    return next((hint for pattern, hint in hints.items() if re.search(pattern, text)), "")


def block_hint(text: str) -> str:
    """Say what to do about a block on an index, or a missing permission, that the engine's message names; "": it names neither.

    A block that was set because the disk was full goes away by itself, other blocks do not. OpenSearch 2 and 3 write "FORBIDDEN/8/index write (api)" and
    "TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark".
    """
    if "flood-stage" in text or "read-only-allow-delete" in text or "read-only / allow delete" in text:
        return "The server's disk is full: free some space; the index opens again by itself."
    if block := _BLOCK.search(text):
        setting = f"index.blocks.{block[1].replace('-', '_')}"
        return f'Somebody set {setting} on the index; PUT /INDEX/_settings with {{"{setting}": null}} removes the block.'
    forbidden = "no permissions for [" in text or "is unauthorized for user [" in text  # OpenSearch's words, Elasticsearch's
    return _STATUS_HINTS[HTTPStatus.FORBIDDEN] if forbidden else ""
