"""The client libraries behind an `Engine`: opensearch-py, and elasticsearch-py where the server is an Elasticsearch.

Which one is needed, the server says: every response of an Elasticsearch carries the header ``X-Elastic-Product``. The first request is
sent by opensearch-py's connection; if the answer has the header, all further requests are sent by elasticsearch-py. No request is sent
only to find that out.

Of both libraries the connection is used, which handles certificates and credentials, and not the transport, which chooses among servers
and serializers: there is one server, orjson is six times as fast as their serializers, and elasticsearch-py's media types of version 9
are refused by servers of version 8.
"""

from __future__ import annotations

import base64
import logging
import ssl
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode, urlsplit

from termweave.errors import UsageError
from termweave.support.extras import install
from termweave.support.paced_responses import paced_connection

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Status, headers and text of a response.
Answer = tuple[int, "Mapping[str, str]", str]
#: The header that names the product.
_PRODUCT = "x-elastic-product"
#: `Engine` reads every response itself, whatever its status: opensearch-py (3.2.0) takes all JSON of an error for an object.
_EVERY_STATUS = range(1000)
#: Most bytes of an answer, unpacked; both libraries read whatever comes.
LARGEST = 256_000_000
_CHUNK = 1 << 16


class AnswerTooLarge(Exception):
    """The server sent more than `LARGEST` bytes."""


@dataclass(frozen=True)
class Access:
    """Address, credentials and limits of a connection.

    Attributes:
        url: Address without credentials.
        authentication: Credentials and certificates, as `credentials.options` gives them for opensearch-py.
        timeout: Seconds that a request waits for its response, unless it says otherwise.
        connections: Number of connections that are kept.
        compress: Whether bodies are sent as gzip.
    """

    url: str
    authentication: Mapping[str, Any]
    timeout: float
    connections: int
    compress: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it travels.

    Attributes:
        method: "GET", "POST" ...
        path: Path with its leading slash, escaped.
        params: Query parameters.
        data: The body.
        timeout: Seconds to wait for the answer; None: `Access.timeout`.
        headers: Content types.
    """

    method: str
    path: str
    params: Mapping[str, Any] | None
    data: bytes | None
    timeout: float | None
    headers: Mapping[str, str]


class Transport(ABC):
    """Sends requests to one server.

    Attributes:
        client: The client of the library, which programs may use beside termweave.
        product: The server's name in messages.
    """

    client: Any
    product: ClassVar[str]

    def __init__(self, access: Access) -> None:
        self._access = access
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Make the client; no connection is opened yet."""

    @abstractmethod
    def send(self, request: Request) -> Answer:
        """Send a request; an error status is an answer like any other."""

    def close(self) -> None:
        """Close all connections. A closed client refuses requests, or sends them without limits, so a new one is made."""
        self.client.close()
        self._open()


class OpenSearchTransport(Transport):
    """Requests by opensearch-py."""

    product = "OpenSearch"

    def _open(self) -> None:
        import opensearchpy  # noqa: PLC0415 - 150 ms

        # It logs every lost connection as a warning; without a handler Python would print that beside our sentence.
        logging.getLogger("opensearch").addHandler(logging.NullHandler())
        self.client = opensearchpy.OpenSearch(
            hosts=[self._access.url],
            timeout=self._access.timeout,
            pool_maxsize=self._access.connections,
            http_compress=self._access.compress,
            max_retries=0,  # `Engine.request` decides what is sent again
            **self._access.authentication,
        )
        self._connection: Any = self.client.transport.get_connection()
        _limit_answers(self._connection.pool, self._access.timeout)

    def send(self, request: Request) -> Answer:
        """Send a request with the connection's own serialization switched off."""
        answer: Answer = self._connection.perform_request(
            request.method,
            request.path,
            params=request.params,
            body=request.data,
            timeout=request.timeout,
            ignore=_EVERY_STATUS,
            headers=request.headers,
        )
        return answer


class ElasticsearchTransport(Transport):
    """Requests by elasticsearch-py.

    Raises:
        UsageError: The extra is not installed.
    """

    product = "Elasticsearch"

    def _open(self) -> None:
        self.client = _elasticsearch(self._access)
        self._node: Any = self.client.transport.node_pool.get()
        if "ssl_context" in self._access.authentication:
            self._node.pool.ca_certs = None  # it would add the usual authorities to those of the context (elastic-transport 9.4)
        _limit_answers(self._node.pool, self._access.timeout)

    def send(self, request: Request) -> Answer:
        """Send a request."""
        target = f"{request.path}?{urlencode(request.params)}" if request.params else request.path
        limit = {} if request.timeout is None else {"request_timeout": request.timeout}
        meta, body = self._node.perform_request(request.method, target, body=request.data, headers=request.headers, **limit)
        return meta.status, meta.headers, body.decode("utf-8", "surrogatepass")


def _elasticsearch(access: Access) -> Any:
    """The client; it opens no connection yet."""
    try:
        from elastic_transport import NodeConfig  # noqa: PLC0415 - an extra
        from elasticsearch import Elasticsearch  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            f"The server at {access.url} is an Elasticsearch, and its client is not installed.",
            f"Install it with: {install('elasticsearch')}.",
        ) from None
    address, context = urlsplit(access.url), access.authentication.get("ssl_context")
    node = NodeConfig(
        scheme=address.scheme,
        host=address.hostname or "",
        port=address.port or 0,
        path_prefix=address.path,
        headers=_authorization(access.authentication),
        connections_per_node=access.connections,
        request_timeout=access.timeout,
        http_compress=access.compress,
        ssl_context=context,
        verify_certs=context is None or context.verify_mode != ssl.CERT_NONE,
        ssl_show_warn=False,
    )
    return Elasticsearch([node], max_retries=0)  # `Engine.request` decides what is sent again


def _authorization(authentication: Mapping[str, Any]) -> dict[str, str]:
    """The header with user and password, which `credentials.options` gives as the characters of their bytes."""
    user = authentication.get("http_auth")
    if not isinstance(user, tuple):
        return {}
    return {"authorization": f"Basic {base64.b64encode(':'.join(user).encode('latin-1')).decode()}"}


def _limit_answers(pool: Any, seconds: float) -> None:
    """Limit the answers that a pool of connections reads.

    Args:
        pool: A pool of urllib3.
        seconds: For a request that names no time-out: for connecting, sending and the answer together.
    """
    from urllib3 import Timeout  # noqa: PLC0415 - comes with the client library

    pool.ConnectionCls = paced_connection(pool.ConnectionCls)
    send = pool.urlopen

    def urlopen(*arguments: Any, timeout: float | None = None, **options: Any) -> SimpleNamespace:
        whole = Timeout(total=seconds if timeout is None else timeout)
        response = send(*arguments, timeout=whole, preload_content=False, **options)
        content = bytearray()
        for part in response.stream(_CHUNK):
            content += part
            if len(content) > LARGEST:
                response.close()
                raise AnswerTooLarge
        return SimpleNamespace(status=response.status, headers=response.headers, data=bytes(content))

    pool.urlopen = urlopen


class DetectingTransport:
    """Requests by the library that the server needs. Views of an engine share it.

    Attributes:
        access: How the server is reached.
        current: The transport in use.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.current: Transport = OpenSearchTransport(access)
        self._known = False
        self._lock = threading.Lock()

    def send(self, request: Request) -> Answer:
        """Send a request; the first answers say which library the next ones need."""
        answer = self.current.send(request)
        if not self._known:
            self._notice(answer[0], answer[1])
        return answer

    def _notice(self, status: int, headers: Mapping[str, str]) -> None:
        """Read the product from an answer. An error without the header may come from a proxy, and says nothing."""
        if any(name.lower() == _PRODUCT for name in headers):
            self.use_elasticsearch()
        elif HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            self._known = True

    def use_elasticsearch(self) -> None:
        """Send all further requests by elasticsearch-py."""
        with self._lock:
            if self.current.product != ElasticsearchTransport.product:
                before, self.current = self.current, ElasticsearchTransport(self.access)
                before.close()
            self._known = True
