"""The client libraries behind an `Engine`: opensearch-py, and elasticsearch-py where the server is an Elasticsearch.

The server's first answer decides which library is used: every response of an Elasticsearch carries the header ``X-Elastic-Product``. The
first request is sent by opensearch-py's connection; if the answer has the header, all further requests are sent by elasticsearch-py. No
request is sent only to find out which server it is.

Two parts of each library are used: the connection, which handles certificates and credentials, and the pool, which takes a cluster's addresses
in turn and sets failing ones aside. The transport is not used: orjson is six times as fast as its serializers, elasticsearch-py's media
types of version 9 are refused by servers of version 8, and both send a request again that may have been carried out.
"""

from __future__ import annotations

import base64
import logging
import re
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from termweave.errors import UsageError
from termweave.support.extras import needed
from termweave.support.paced_responses import paced_connection

#: Status, headers and text of a response.
Answer = tuple[int, "Mapping[str, str]", str]
#: The header that names the product.
_PRODUCT = "x-elastic-product"
#: `Engine` reads every response itself, whatever its status: opensearch-py (3.2.0) takes all JSON of an error for an object.
_EVERY_STATUS = range(1000)
#: Most bytes of an answer, unpacked; both libraries read whatever comes.
LARGEST = 256_000_000
_CHUNK = 1 << 16


#: Where a cluster has several addresses: seconds for a connection, and for the answer to a request that may be sent to the next one.
_CONNECTING, _ANSWERING = 5.0, 10.0
#: Statuses of a node that is away, or outside its cluster; after the first one any request may be sent again, after the others one
#: that may be carried out twice.
_REFUSED = HTTPStatus.SERVICE_UNAVAILABLE
_AWAY = frozenset({_REFUSED, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})


#: Exceptions of urllib3 that say that there was no connection.
_NEVER_SENT = frozenset({"ConnectTimeoutError", "NewConnectionError", "NameResolutionError"})


class AnswerTooLarge(Exception):
    """The server sent more than `LARGEST` bytes."""


class NoAnswer(Exception):
    """A request got no readable answer.

    Attributes:
        cause: The exception of the client library.
        url: The address that was asked last.
        everywhere: Whether there are several addresses and all of them failed.
    """

    def __init__(self, cause: Exception, url: str, *, everywhere: bool) -> None:
        super().__init__(url)
        self.cause, self.url, self.everywhere = cause, url, everywhere


@dataclass(frozen=True)
class Address:
    """One address of a server or cluster.

    Attributes:
        url: Address without credentials.
        user: User name that requests carry; "": requests carry no user name.
        password: The user's password.
        context: The TLS context; None for a connection without TLS.
        signer: Object that signs requests for AWS, in place of user and password; None: requests are not signed.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None
    signer: Any = None

    @property
    def headers(self) -> dict[str, str]:
        """The header with user and password, {} without them. It is UTF-8, as servers read it (RFC 7617); opensearch-py would write Latin-1."""
        if not self.user or self.signer is not None:
            return {}
        pair = f"{self.user}:{self.password}".encode("utf-8", "surrogateescape")  # bytes that are not UTF-8 are sent unchanged
        return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}


@dataclass(frozen=True)
class Access:
    """Addresses, credentials and limits of a connection.

    Attributes:
        addresses: Addresses of a server, or of several nodes of one cluster.
        timeout: Seconds that a request waits for its response, unless the request has a time-out of its own.
        connections: Number of connections that are kept to each address.
        compress: Whether bodies are sent as gzip.
    """

    addresses: tuple[Address, ...]
    timeout: float
    connections: int
    compress: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it is sent: path escaped, body encoded.

    Attributes:
        method: "GET", "POST" ...
        path: Path with its leading slash, escaped.
        params: Query parameters.
        data: The body.
        timeout: Seconds to wait for the answer; None: `Access.timeout`.
        headers: Content types.
        again: Whether the request has the same effect if it is carried out twice, so that it may be sent again.
    """

    method: str
    path: str
    params: Mapping[str, Any] | None
    data: bytes | None
    timeout: float | None
    headers: Mapping[str, str]
    again: bool = False


class Transport(ABC):
    """Sends requests to one server, or to the nodes of a cluster in turn.

    Attributes:
        client: The client of the library, which programs may use beside termweave.
        cluster: With several addresses, one of them and the id of its cluster; None: no node has told its cluster yet.
        product: The server's name in messages.
    """

    client: Any
    product: ClassVar[str]
    #: The library's pool of connections; both have `mark_dead` and `mark_live`.
    _pool: Any
    #: The connection whose turn it is; of those that are set aside only if there is no other, or their time is over.
    _next: Callable[[], Any]

    def __init__(self, access: Access) -> None:
        self._access = access
        self.cluster: tuple[str, str] | None = None
        self._known: set[str] = set()  # of several addresses those that answered, and were not set aside since
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make the library's client; no connection is opened yet."""

    @abstractmethod
    def _ask(self, connection: Any, request: Request) -> Answer:
        """Send a request to one address."""

    @abstractmethod
    def _url(self, connection: Any) -> str:
        """The address of the server to which a connection leads."""

    def send(self, request: Request) -> tuple[Answer, str]:
        """Send a request; an error status is an answer like any other.

        A node that does not answer is set aside, and the next node is asked, if the request was not sent or may be sent again.

        Returns:
            The answer, and the address of the node that gave it.

        Raises:
            NoAnswer: No address answers, or the failing node may have carried out a request that must not be sent twice.
            UsageError: The addresses are of different clusters.
        """
        others = len(self._access.addresses) - 1
        timeout = request.timeout or self._access.timeout
        until = time.monotonic() + timeout
        for left in range(others, -1, -1):
            connection = self._next()
            most = min(timeout, _ANSWERING) if left and request.again else max(until - time.monotonic(), min(timeout, _ANSWERING))
            begun = not others
            try:
                if others:
                    self._get_to_know(connection, timeout)
                    begun = True
                answer = self._ask(connection, replace(request, timeout=most) if others else request)
            except UsageError:
                raise
            except Exception as error:
                cause = error.__context__
                if others and not isinstance(cause, AnswerTooLarge | UnicodeDecodeError):
                    self._set_aside(connection)
                    if left and (request.again or not begun or type(cause).__name__ in _NEVER_SENT):
                        continue
                raise NoAnswer(error, self._url(connection), everywhere=bool(others and not left)) from error
            if left and answer[0] in _AWAY and (request.again or answer[0] == _REFUSED):
                self._set_aside(connection)
                continue
            if others:
                self._pool.mark_live(connection)
            break
        return answer, self._url(connection)

    def _get_to_know(self, connection: Any, timeout: float) -> None:
        """Ask a node that is new, or was away, for its cluster, before the real request: a node that is still away fails here, quickly.

        Raises:
            UsageError: The node belongs to another cluster than the others, so that documents and searches would be scattered.
        """
        url = self._url(connection)
        if url in self._known:
            return
        root = Request("GET", "/", None, None, min(timeout, _ANSWERING), {"accept": "application/json"})
        _, _, text = self._ask(connection, root)
        # A node that has not joined a cluster yet says "_na_"; a user without the permission is told nothing.
        uuid = re.search(r'"cluster_uuid"\s*:\s*"(?!_na_")([^"]+)"', text)
        if uuid is not None:
            self.cluster = first_url, cluster = self.cluster or (url, uuid[1])
            if cluster != uuid[1]:
                raise UsageError(f"{first_url} and {url} belong to different clusters.", "Give addresses of one cluster.")
        self._known.add(url)

    def _set_aside(self, connection: Any) -> None:
        self._known.discard(self._url(connection))
        self._pool.mark_dead(connection)

    def close(self) -> None:
        """Close all connections, and make a new client, because a closed client refuses requests, or sends them without limits."""
        self.client.close()
        self._open()


class OpenSearchTransport(Transport):
    """Sends requests by opensearch-py."""

    product = "OpenSearch"

    def _open(self) -> None:
        import opensearchpy  # noqa: PLC0415 - 150 ms

        # It logs every lost connection as a warning; without a handler Python would print that beside our sentence.
        logging.getLogger("opensearch").addHandler(logging.NullHandler())
        access = self._access
        hosts = [{**_host(each), "pool_maxsize": access.connections} for each in access.addresses]
        # No retries: `Engine.request` decides what is sent again.
        self.client = opensearchpy.OpenSearch(hosts, max_retries=0, timeout=access.timeout, http_compress=access.compress)
        self._pool = self.client.transport.connection_pool
        self._next = self._pool.get_connection
        for connection, _ in self._pool.connection_opts:
            _limit_answers(connection.pool, access)

    def _url(self, connection: Any) -> str:
        return f"{connection.host}{connection.url_prefix}"

    def _ask(self, connection: Any, request: Request) -> Answer:
        """Send a request with the connection's own serialization switched off."""
        options = {"params": request.params, "timeout": request.timeout, "headers": request.headers, "ignore": _EVERY_STATUS}
        answer: Answer = connection.perform_request(request.method, request.path, body=request.data, **options)
        return answer


class ElasticsearchTransport(Transport):
    """Sends requests by elasticsearch-py.

    Raises:
        UsageError: The extra with elasticsearch-py is not installed.
    """

    product = "Elasticsearch"

    def _open(self) -> None:
        addresses, access = {each.url: each for each in self._access.addresses}, self._access
        subject = f"The server at {access.addresses[0].url} is an Elasticsearch, and its client"
        library = needed("elasticsearch", "elasticsearch", subject)
        logging.getLogger("elastic_transport").addHandler(logging.NullHandler())  # as that of opensearch-py
        self.client = library.Elasticsearch([_node(each, access) for each in access.addresses], max_retries=0)
        self._pool = self.client.transport.node_pool
        self._next = self._pool.get
        for node in self._pool.all():
            # Not as an option: elasticsearch-py (9.5) gives the headers of the first node to all.
            node.headers.update(addresses[node.base_url].headers)
            if node.scheme == "https":
                node.pool.ca_certs = None  # it would add the usual authorities to those of the context (elastic-transport 9.4)
            _limit_answers(node.pool, access)

    def _url(self, connection: Any) -> str:
        return str(connection.base_url)

    def _ask(self, connection: Any, request: Request) -> Answer:
        """Send a request."""
        target = f"{request.path}?{urlencode(request.params)}" if request.params else request.path
        limit = {"request_timeout": request.timeout or self._access.timeout}
        meta, body = connection.perform_request(request.method, target, body=request.data, headers=request.headers, **limit)
        return meta.status, meta.headers, body.decode("utf-8", "surrogatepass")


def _node(address: Address, access: Access) -> Any:
    """An address in the form that elasticsearch-py takes. Addresses of one cluster may differ in their scheme."""
    from elastic_transport.client_utils import url_to_node_config  # noqa: PLC0415 - an extra

    context = address.context
    tls = {
        "ssl_context": context,
        "verify_certs": context is None or context.verify_mode != ssl.CERT_NONE,
        "ssl_show_warn": False,
    }
    node = url_to_node_config(address.url)
    return node.replace(connections_per_node=access.connections, http_compress=access.compress, **tls)


def _host(address: Address) -> dict[str, Any]:
    """An address in the form that opensearch-py takes."""
    parts = urlsplit(address.url)
    host = {"host": parts.hostname, "port": parts.port, "url_prefix": parts.path, "use_ssl": parts.scheme == "https"}
    return {**host, "ssl_context": address.context, "http_auth": address.signer, "headers": address.headers}


def _limit_answers(pool: Any, access: Access) -> None:
    """Limit the answers that a pool of urllib3 reads: their size, and the time for connecting, sending and the answer together."""
    from urllib3 import Timeout  # noqa: PLC0415 - comes with the client library

    connecting = _CONNECTING if len(access.addresses) > 1 else None
    pool.ConnectionCls = paced_connection(pool.ConnectionCls)
    send = pool.urlopen

    def urlopen(*arguments: Any, timeout: float | None = None, **options: Any) -> SimpleNamespace:
        whole = Timeout(connect=connecting, total=access.timeout if timeout is None else timeout)
        response = send(*arguments, timeout=whole, preload_content=False, **options)
        content = bytearray()
        for part in response.stream(_CHUNK):
            content += part
            if len(content) > LARGEST:
                response.close()
                raise AnswerTooLarge
        # opensearch-py would print what the server calls deprecated as a warning of Python
        response.headers.discard("warning")
        return SimpleNamespace(status=response.status, headers=response.headers, data=bytes(content))

    pool.urlopen = urlopen


class DetectingTransport:
    """Sends requests by the library that the server needs. All views of an engine share one such object.

    Attributes:
        access: Addresses, credentials and limits of the connection.
        current: The transport in use, of the one or the other library.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.current: Transport = OpenSearchTransport(access)
        self._known = False
        self._lock = threading.Lock()

    def send(self, request: Request) -> tuple[Answer, str]:
        """Send a request as `Transport.send`; the first answers say which library the next ones need."""
        answer, url = self.current.send(request)
        status, headers, _ = answer
        if not self._known and any(name.lower() == _PRODUCT for name in headers):
            self.use_elasticsearch()
        elif HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:  # an error without the header may come from a proxy
            self._known = True
        return answer, url

    def use_elasticsearch(self) -> None:
        """Send all further requests by elasticsearch-py."""
        with self._lock:
            if self.current.product != ElasticsearchTransport.product:
                before, self.current = self.current, ElasticsearchTransport(self.access)
                self.current.cluster = before.cluster
                before.close()
            self._known = True
