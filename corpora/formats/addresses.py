"""Addresses as sources: an index that is read, and a file that is downloaded.

``opensearch:NAME`` is an index on the target's server, ``https://host:9200/NAME`` on any other. ``elasticsearch:NAME`` means the same as
``opensearch:NAME``: the server itself says which of the two it is. An http(s) address is that of a file if its last part has a dot, if it has a
query, or if it has no path. An index with a dot in its name is written ``opensearch:https://host:9200/NAME``.

A file is downloaded to disk, because sources are read twice. No credentials are sent: no password in an address, no .netrc, no cookies. TLS
certificates are checked against the system's authorities (``SSL_CERT_FILE`` names others), and proxies are those of the environment. A build that
was stopped resumes by the digest of the bytes, so the file is downloaded again and its unchanged documents are not encoded again.
"""

from __future__ import annotations

import http.client
import re
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from termweave.corpora.formats.lines import new_copy
from termweave.errors import InputError, UsageError
from termweave.support.messages import first_line, sized, without_password
from termweave.support.paced_responses import paced_connection

PREFIX = "opensearch:"
PREFIXES = (PREFIX, "elasticsearch:")
_SCHEMES = ("http://", "https://")
#: The names of indices that an address may end with as it stands.
_INDEX = re.compile(r"[a-z0-9][a-z0-9_-]*")
#: The largest file, in bytes, and the share of the free space of the temporary folder that a file may fill.
LARGEST, OF_FREE_SPACE = 100_000_000_000, 0.9
#: Seconds without an answer after which the server counts as gone.
SECONDS = 30.0
#: So many bytes must arrive, or the answer end, in each so many seconds of waiting: a byte now and then would keep a server from being gone.
LEAST = (100_000, 60.0)
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexAddress:
    """An index and the server that holds it.

    Attributes:
        index: Name of an index or alias.
        url: Address of the server, as given, perhaps with a user name and a password; None: the index is on the server that termweave writes to.
        prefix: The prefix before the address, one of `PREFIXES`.
    """

    index: str
    url: str | None = None
    prefix: str = PREFIX

    @property
    def shown(self) -> str:
        """The address for messages, ledgers and lineage: without user name and password."""
        return f"{self.prefix}{self.index}" if self.url is None else f"{shown(self.url)}/{self.index}"


def is_index(spec: str) -> bool:
    """Whether a SOURCE argument names an index.

    Example:
        >>> [is_index(f"https://host:9200/{rest}") for rest in ("products", "products.jsonl.gz", "products?key=1", "")]
        [True, False, False, False]
    """
    if spec.startswith(PREFIXES):
        return True
    parts = _parsed(spec.rstrip("/")) if spec.startswith(_SCHEMES) else None
    return bool(parts and not parts.query and _INDEX.fullmatch(parts.path.rpartition("/")[2]))


def _parsed(address: str) -> SplitResult | None:
    """Return the parts of an address; None: the address has no host, or is not written as an address."""
    with suppress(ValueError):
        parts = urlsplit(address)
        parts.port  # noqa: B018 - raises for one that is not a number
        return parts if parts.hostname else None
    return None


def parse_index(spec: str) -> IndexAddress:
    """Parse a SOURCE argument that names an index.

    Raises:
        UsageError: The argument names no index, or several.

    Example:
        >>> parse_index("https://reader:secret@host:9200/search/products").shown
        'https://host:9200/search/products'
    """
    prefix = next((each for each in PREFIXES if spec.startswith(each)), PREFIX)
    rest, safe = spec.removeprefix(prefix), without_password(spec)
    url, index = None, rest
    if rest.startswith(_SCHEMES):
        parts = _parsed(rest.rstrip("/"))
        if parts is None or "," in parts.netloc:
            raise UsageError(f"{safe} is not the address of one server.", "Write https://HOST:9200/INDEX.")
        path, _, index = parts.path.rpartition("/")
        url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        if parts.query or parts.fragment:
            raise UsageError(f"{safe} has a query or a fragment.", "Write https://HOST:9200/INDEX, and use --source-query FILE.")
    index = unquote(index)
    if not index or set(index) & set('*?,<>/\\|" #') or index.startswith(("-", "_")):
        raise UsageError(f"{safe} does not name one index or alias.", "Write opensearch:INDEX or https://HOST:9200/INDEX.")
    return IndexAddress(index, url, prefix)


def is_file(spec: str) -> bool:
    """Whether a source is the http(s) address of a file."""
    return not is_index(spec) and spec.lower().startswith(_SCHEMES)


def shown(address: str) -> str:
    """Return an address for messages: without user name and password, and without the query, which may hold a signature."""
    parts = _parsed(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts else "the source"


def downloaded(address: str) -> Path:
    """Download a file to a temporary copy and return the copy's path; the caller removes the copy with `lines.discard`.

    Raises:
        UsageError: The address holds a password or names no host; the server says that there is no such file, or wants a password.
        InputError: The server does not answer, breaks off or trickles; a redirect leads from https to http; the answer is a web page; there is no room.
    """
    if (parts := _parsed(address)) is None:
        raise UsageError("The address of the source is not valid.", "Write https://HOST/PATH.")
    name = shown(address)
    if "@" in parts.netloc:
        hint = "Download the file with a program that can (`curl --netrc`), and name the file."
        raise UsageError(f"The address of {name} holds a password, which termweave does not send.", hint)
    called = PurePosixPath(unquote(parts.path)).name or parts.netloc
    opener = urllib.request.build_opener(_Redirects(), _Paced())
    request = urllib.request.Request(address, headers={"User-Agent": "termweave", "Accept": "*/*"})  # noqa: S310 - checked by is_file
    try:
        with opener.open(request, timeout=SECONDS) as answer, new_copy(called) as copy:
            copy.writelines(_checked(answer, name))
        return Path(copy.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(name, error) from None
    except urllib.error.URLError as error:
        raise _gone(name, error.reason if isinstance(error.reason, Exception) else error) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _gone(name, error) from None


class _Paced(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections that break off when an answer arrives too slowly (`LEAST`)."""

    def http_open(self, req: Any) -> Any:
        return self.do_open(paced_connection(http.client.HTTPConnection, *LEAST), req)

    def https_open(self, req: Any) -> Any:
        return self.do_open(paced_connection(http.client.HTTPSConnection, *LEAST), req, context=ssl.create_default_context())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows up to ten redirects, but none from https to http or to another scheme."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> Any:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in {"http", "https"} or (before == "https" and after == "http"):
            hint = "If you trust the network, name the second address yourself."
            raise InputError(f"{shown(req.full_url)} redirects to {shown(newurl)}, which is not encrypted.", hint)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _checked(answer: Any, name: str) -> Iterator[bytes]:
    """Yield the body of an HTTP answer in chunks.

    Raises:
        InputError: The body is a web page, larger than the room for it, or shorter than announced; or the server breaks off.
    """
    announced = int(length) if (length := answer.headers.get("Content-Length", "")).isdigit() else 0
    room = min(LARGEST, int(shutil.disk_usage(tempfile.gettempdir()).free * OF_FREE_SPACE))
    size, chunk = 0, b""
    while True:
        if max(size, announced) > room:
            hint = "Set TMPDIR to a folder on a disk with more room, or download the file and name it."
            raise InputError(f"{name} has {sized(max(size, announced))} or more, and there is room for {sized(room)}.", hint)
        yield chunk
        try:
            chunk = answer.read(_CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _gone(name, error) from None
        if not chunk:
            break
        if not size and answer.headers.get_content_type() == "text/html" and chunk.lstrip()[:1] == b"<":
            hint = "Open the address in a browser: the page may be a login, an error, or link to the file."
            raise InputError(f"{name} answers with a web page, not with a file of documents.", hint)
        size += len(chunk)
    if size < announced:
        raise _gone(name, ConnectionError(f"it sent {sized(size)} of {sized(announced)}"))


def _gone(name: str, error: Exception) -> InputError:
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or first_line(error)
        message = f"{name} could not be downloaded: the certificate or the encryption of the server is not valid ({reason})."
        return InputError(message, "If an authority of your own signed it, name the authority's file in SSL_CERT_FILE.")
    hint = "Check the address and the network; the same command begins again, and what is indexed already is kept."
    return InputError(f"{name} could not be downloaded: {first_line(error)}.", hint)


def _refused(name: str, error: urllib.error.HTTPError) -> UsageError | InputError:
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        hint = "Download the file with a program that can, and name the file."
        return UsageError(f"{name} may not be read without credentials (HTTP {error.code}), and termweave sends none.", hint)
    if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return UsageError(f"The server has no {name} (HTTP {error.code}).", "Check the address.")
    if "not allowed" in str(error.reason):
        return UsageError(f"{name} redirects to an address that is neither http nor https.", "Download the file, and name it.")
    if error.code < HTTPStatus.BAD_REQUEST:
        return UsageError(f"{name} redirects in a circle, or more than ten times (HTTP {error.code}).", "Name the last address.")
    return InputError(f"{name} could not be downloaded: HTTP {error.code} {error.reason}.", "Try again later.")
