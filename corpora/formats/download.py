"""Download the file behind an http(s) address to disk, because sources are read twice.

No credentials are sent: no password in an address, no .netrc, no cookies. TLS certificates are checked against the system's authorities
(``SSL_CERT_FILE`` names others), and proxies are those of the environment. A build that was stopped resumes by the digest of the bytes,
so the file is downloaded again and its unchanged documents are not encoded again.
"""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from termweave.corpora.formats import index_address
from termweave.corpora.formats.compression import copies
from termweave.errors import InputError, UsageError
from termweave.support import private_files
from termweave.support.messages import first_line, sized
from termweave.support.paced_responses import paced_connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPMessage

#: The largest file, in bytes, and the share of the free space of the temporary folder that a file may fill.
LARGEST, OF_FREE_SPACE = 100_000_000_000, 0.9
#: Seconds without an answer after which the server counts as gone.
SECONDS = 30.0
#: So many bytes must arrive, or the answer end, in each so many seconds of waiting: a byte now and then would keep a server from being gone.
LEAST = (100_000, 60.0)
_CHUNK = 1 << 20
_SCHEMES = ("http", "https")


def is_address(spec: str) -> bool:
    """Whether a source is the http(s) address of a file."""
    return not index_address.is_address(spec) and spec.lower().startswith(tuple(f"{scheme}://" for scheme in _SCHEMES))


def shown(address: str) -> str:
    """An address for messages: without the query, which may hold a signature."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "the source"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def downloaded(address: str) -> Path:
    """Download a file. The caller removes it with `lines.discard`.

    Raises:
        UsageError: The address holds a password or names no host; the server says that there is no such file, or wants a password.
        InputError: The server does not answer, breaks off or trickles; a redirect leads from https to http; the answer is a web page; there is no room.
    """
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises for one that is not a number
    except ValueError as error:
        raise UsageError(f"The source is not an address: {first_line(error)}.", "Write https://HOST/PATH.") from None
    name = shown(address)
    if not parts.hostname:
        raise UsageError(f"{name} names no host.", "Write https://HOST/PATH.")
    if "@" in parts.netloc:
        raise UsageError(
            f"The address of {name} holds a password, which termweave does not send.",
            "Download the file with a program that can (`curl --netrc`), and name the file.",
        )
    opener = urllib.request.build_opener(_Redirects(), _Http(), _Https())
    request = urllib.request.Request(address, headers={"User-Agent": "termweave", "Accept": "*/*"})  # noqa: S310 - checked by is_address
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return _saved(answer, name)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(name, error) from None
    except urllib.error.URLError as error:
        reason = error.reason if isinstance(error.reason, Exception) else error
        raise _gone(name, reason) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _gone(name, error) from None


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(paced_connection(http.client.HTTPConnection, *LEAST), req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        return self.do_open(paced_connection(http.client.HTTPSConnection, *LEAST), req, context=ssl.create_default_context())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows up to ten redirects, but none from https to http or to another scheme."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> Any:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in _SCHEMES or (before == "https" and after == "http"):
            raise InputError(
                f"{shown(req.full_url)} redirects to {shown(newurl)}, which is not encrypted.",
                "If you trust the network, name the second address yourself.",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _saved(answer: Any, name: str) -> Path:
    """Write the body of an answer to a temporary file, and remember its name for messages."""
    announced = int(length) if (length := answer.headers.get("Content-Length", "")).isdigit() else None
    room = min(LARGEST, int(shutil.disk_usage(tempfile.gettempdir()).free * OF_FREE_SPACE))
    if announced is not None and announced > room:
        raise _too_large(name, announced, room)
    handle, made = tempfile.mkstemp(dir=private_files.scratch())
    path = Path(made)
    try:
        with os.fdopen(handle, "wb") as copy:
            for chunk in _checked(answer, name, room, announced):
                copy.write(chunk)
    except BaseException:  # Ctrl-C, too
        path.unlink(missing_ok=True)
        raise
    copies[path] = PurePosixPath(unquote(urlsplit(name).path)).name or urlsplit(name).netloc
    return path


def _checked(answer: Any, name: str, room: int, announced: int | None) -> Iterator[bytes]:
    """The body of an answer in chunks.

    Raises:
        InputError: It is a web page, larger than `room`, or shorter than announced.
    """
    size = 0
    while chunk := answer.read(_CHUNK):
        if not size and answer.headers.get_content_type() == "text/html" and chunk.lstrip()[:1] == b"<":
            raise InputError(
                f"{name} answers with a web page, not with a file of documents.",
                "Open it in a browser: it may be a login, an error, or the page that links to the file.",
            )
        size += len(chunk)
        if size > room:
            raise _too_large(name, size, room)
        yield chunk
    if announced is not None and size < announced:
        raise _gone(name, ConnectionError(f"it sent {sized(size)} of {sized(announced)}"))


def _too_large(name: str, size: int, room: int) -> InputError:
    return InputError(
        f"{name} has {sized(size)} or more, and there is room for {sized(room)}.",
        "Set TMPDIR to a folder on a disk with more room, or download the file and name it.",
    )


def _gone(name: str, error: Exception) -> InputError:
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or first_line(error)
        return InputError(
            f"{name} could not be downloaded: the certificate or the encryption of the server is not valid ({reason}).",
            "If an authority of your own signed it, name the authority's file in SSL_CERT_FILE.",
        )
    return InputError(
        f"{name} could not be downloaded: {first_line(error)}.",
        "Check the address and the network; the same command begins again, and what is indexed already is kept.",
    )


def _refused(name: str, error: urllib.error.HTTPError) -> UsageError | InputError:
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return UsageError(
            f"{name} may not be read without credentials (HTTP {error.code}), and termweave sends none.",
            "Download the file with a program that can, and name the file.",
        )
    if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return UsageError(f"The server has no {name} (HTTP {error.code}).", "Check the address.")
    if "not allowed" in str(error.reason):
        return UsageError(f"{name} redirects to an address that is neither http nor https.", "Download the file, and name it.")
    if error.code < HTTPStatus.BAD_REQUEST:
        return UsageError(
            f"{name} redirects in a circle, or more than ten times (HTTP {error.code}).", "Name the last address yourself."
        )
    return InputError(f"{name} could not be downloaded: HTTP {error.code} {error.reason}.", "Try again later.")
