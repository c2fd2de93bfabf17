"""The connection to an OpenSearch server: choose the server, send requests, and read the responses.

The modules beside it: `credentials` authenticates, `transports` holds the client libraries, `payloads` encodes bodies, `index_limits`
divides searches, `retries` decides which requests are sent again, `server_errors` turns failures into sentences.

opensearch-py (3.2.0) is typed `Any` throughout and raises some twenty exceptions; the rest of termweave sees `Engine` and two
exceptions only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

from termweave.engine.client import credentials, payloads, retries, server_errors
from termweave.engine.client.capabilities import has_search_pipelines, probe
from termweave.engine.client.index_limits import IndexLimits
from termweave.engine.client.payloads import ALL_SHARDS, LastAnswers, quote
from termweave.engine.client.server_errors import EngineResponseError, NotOpenSearch
from termweave.engine.client.transports import Access, DetectingTransport, NoAnswer, Request
from termweave.errors import EngineError, EngineUnreachable

if TYPE_CHECKING:
    from termweave.engine.client.resolved_name import ResolvedName
    from termweave.records import Capabilities
    from termweave.settings import Settings

T = TypeVar("T")
__all__ = ["Engine", "blamed_server", "connect", "quote"]

#: All engines of this process; see `_close_after_fork`.
_ENGINES: WeakSet[Engine] = WeakSet()


class Engine:
    """A connection to an OpenSearch or Elasticsearch server. Threads may share it, and so may processes that fork.

    Attributes:
        addresses: Addresses, without credentials, of the server, or of several nodes of its cluster, which are asked in turn.
        url: The addresses joined by commas, for messages.
        retries: Decides which requests are sent again, and counts the seconds that a build waited for the server.
        user: User name that the requests carry; "" for none (certificates and AWS signatures have no user name here).
    """

    def __init__(self, access: Access) -> None:
        self._transport = DetectingTransport(access)
        self.addresses = tuple(each.url for each in access.addresses)
        self.url = ",".join(self.addresses)
        user = next((each.user for each in access.addresses if each.user and each.signer is None), "")
        self.user = user.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self._tls = next((each.context for each in access.addresses if each.context), None)  # all addresses share it
        self.retries = retries.Retries()
        self._last_answers, self._limits = LastAnswers(), IndexLimits()
        self._narrowed: ResolvedName | None = None
        self._watched = False
        _ENGINES.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine({self.url!r})"

    def close(self) -> None:
        """Close all connections to the server."""
        self._transport.current.close()

    def patient(self, seconds: float, say: Callable[[str], None] | None = None) -> Self:
        """A view of this connection for a build: every request that the server turns away (429, 503) is repeated.

        Args:
            seconds: How long a request is repeated, counted from its first failure.
            say: Prints a sentence when the server is away and when it is back; None: the function of this connection is kept, at
                first a logger.
        """
        outage = self.outage if say is None else retries.Outage(say)
        return self._view(retries=retries.Retries(seconds, outage), _watched=True)

    def watched(self, say: Callable[[str], None]) -> Self:
        """A view of this connection for a user who waits: `say` prints a sentence when a request has had no answer for 10 s, and again later."""
        return self._view(retries=retries.Retries(outage=retries.Outage(say)), _watched=True)

    def _view(self, **changed: Any) -> Self:
        """A copy of this connection with some attributes changed; both share the transport."""
        view = copy(self)
        vars(view).update(changed)
        _ENGINES.add(view)
        return view

    def apart(self) -> Self:
        """Open a separate connection to the same server: its requests wait for no request of this connection, and report no outage."""
        return type(self)(replace(self._transport.access, connections=1))

    def narrowed(self, resolved: ResolvedName) -> Self:
        """A view of this connection whose requests read only the documents that a search of the resolved name sees."""
        return self._view(_narrowed=resolved) if resolved.partial else self

    @property
    def outage(self) -> retries.Outage:
        """The reporter that tells the user that the server is away or back; a caller that repeats requests itself reports failures to it."""
        return self.retries.outage

    @property
    def timeout(self) -> float:
        """Seconds that a request waits for its response, unless the request has a time-out of its own."""
        return self._transport.access.timeout

    @property
    def client(self) -> Any:
        """The underlying `opensearchpy.OpenSearch`, or `elasticsearch.Elasticsearch` once that server has answered."""
        return self._transport.current.client

    @property
    def product(self) -> str:
        """Name of the server for messages: "OpenSearch" or "Elasticsearch", as the server's first answer tells."""
        return self._transport.current.product

    def use_elasticsearch(self) -> None:
        """Switch to the client library of Elasticsearch, for a server known only by its root page because a proxy removes the telling header."""
        self._transport.use_elasticsearch()

    @cached_property
    def capabilities(self) -> Capabilities:
        """The capabilities of the server, which are asked for once."""
        return probe(self)

    @cached_property
    def has_search_pipelines(self) -> bool:
        """Whether the server has search pipelines: a search may bring a pipeline of its own, and an index may have a default pipeline."""
        return has_search_pipelines(self)

    def without_pipeline(self, search: dict[str, Any]) -> dict[str, Any]:
        """Add an empty search pipeline to the body of a search, unless the body names a pipeline.

        Without it the default pipeline of an index (`index.search.default_pipeline`) could hide documents, rename fields or change scores.
        """
        return search if "search_pipeline" in search or not self.has_search_pipelines else {**search, "search_pipeline": {}}

    def of_indices(self, path: str, kind: str, *, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Read one kind of information about indices: ``{index: {kind: ...}}``.

        Nearly every command begins with such a request, so this method notices a server that is not OpenSearch, even if that server responds
        to every path with 200.

        Args:
            path: ``/NAME/_alias`` or ``/NAME/_mapping``.
            kind: "aliases" or "mappings".
            params: Query parameters, as in `request`.

        Raises:
            NotOpenSearch: The response does not have this form.
            EngineError: See `request`.
        """
        indices: dict[str, Any] = self.request("GET", path, params=params)
        if not all(isinstance(index, dict) and kind in index for index in indices.values()):
            raise NotOpenSearch(self.url, f"GET {path}", indices, HTTPStatus.OK)
        return indices

    def search(self, index: str, body: Mapping[str, Any]) -> Any:
        """Search all shards of an index; a shard that does not answer is an error, because its documents would be missing unnoticed.

        Args:
            index: Name of the index, escaped as in a path.
            body: The body of the search.
        """
        return self.request("POST", f"/{index}/_search", params=ALL_SHARDS, body=body)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,
        retry: bool | None = None,
    ) -> Any:
        """Send one request.

        Args:
            method: "GET", "POST" ...
            path: Path with its leading slash, already escaped (see `quote`).
            params: Query parameters; True and False become "true" and "false".
            body: A JSON value, or bytes that are sent as they are (NDJSON). For `_msearch` the list of its lines. Searches run
                `without_pipeline`, unless `params` name one.
            timeout: Seconds to wait for the response; default: the setting `timeout`.
            retry: Whether to send the request again after a lost connection or 429, 502, 503, 504; default: only if it changes nothing
                (`patient` repeats more); False: never, but of several addresses the next one is asked where that does no harm.

        Returns:
            The parsed response: a mapping, for `_cat` a list, for HEAD a bool.

        Raises:
            EngineUnreachable: There was no response.
            EngineResponseError: The engine responded with an error.
            NotOpenSearch: Another kind of server responded.
            EngineError: The response is not JSON.
        """
        if self._narrowed is not None and self._narrowed.covers(path):
            if retries.endpoint(path) == "_mget":
                return self._narrowed.documents(self, path, params or {}, body["ids"])
            params = self._narrowed.params(params)
            body = self._narrowed.lines(body) if isinstance(body, list) else self._narrowed.search(body)
        if payloads.is_search(path) and "search_pipeline" not in (params or {}):
            if isinstance(body, list):
                body = [self.without_pipeline(line) if number % 2 else line for number, line in enumerate(body)]
            elif not isinstance(body, bytes):
                body = self.without_pipeline(body or {})
        if payloads.is_search(path) and not isinstance(body, bytes):
            return self._limits.search(path, body, lambda part: self._repeated(method, path, params, part, timeout, retry=retry))
        return self._repeated(method, path, params, body, timeout, retry=retry)

    def _repeated(
        self, method: str, path: str, params: Mapping[str, Any] | None, body: Any, timeout: float | None, *, retry: bool | None
    ) -> Any:
        """Send a request, and repeat it as `request` promises; the arguments are those of `request`."""
        data = payloads.encode(body, path)
        lines = data is not None and retries.endpoint(path) in {"_bulk", "_msearch"}
        # `_cat` sends plain text unless asked for JSON; everything else sends JSON anyway.
        headers = {"accept": "application/json", "content-type": "application/x-ndjson" if lines else "application/json"}
        patient = self.retries.patience is not None
        again = retry or retries.may_be_sent_twice(method, path, patient=patient)
        sent = Request(method, path, payloads.query_parameters(params), data, timeout, headers, again)

        def attempt(most: float | None) -> Any:
            limited = sent if most is None else replace(sent, timeout=min(timeout or self.timeout, most))
            if not self._watched:
                return self._send(limited)
            waiting = f"{self.product} has not answered {method} {path}"
            with self.outage.watching(waiting, limited.timeout or self.timeout, again=patient):
                return self._send(limited)

        once = retry is False
        return self.retries.run(attempt, repeatable=again and not once, once=once, limit=timeout or self.timeout)

    def repeat(self, call: Callable[[], T]) -> T:
        """Call a function that sends requests, and repeat the call as often as a request that changes nothing is repeated.

        Args:
            call: The function; it raises `EngineResponseError` with status 429 or 503 if the call should be repeated.
        """
        return self.retries.run(lambda _: call(), repeatable=True)

    def _send(self, request: Request) -> Any:
        product = self.product  # another thread may learn meanwhile that it is Elasticsearch
        try:
            (status, answer_headers, text), url = self._transport.send(request)
        except NoAnswer as error:
            cause = error.cause
            failure = server_errors.from_exception(cause, error.url, f"{request.method} {request.path}", self._tls, product)
            if failure is None:  # a fault in termweave itself
                raise cause from None
            if error.everywhere:
                failure.message = f"{failure.message.removesuffix('.')}; the other addresses failed, too."
            raise failure from cause
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            self._last_answers.add(f"{request.method} {request.path}", text, whole="filter_path" not in (request.params or {}))
        try:
            return self._parse(status, text, request.method, request.path, url)
        except EngineResponseError as error:
            error.retry_after = retries.seconds_to_wait(answer_headers)
            # A server that does not know this parameter is not asked for ever.
            if not (request.params or {}).get("ignore_unavailable"):
                self._check_missing(error, request)
            raise

    def _check_missing(self, error: EngineResponseError, request: Request) -> None:
        """Check that an index is really missing when the engine answers that it is.

        A cluster that has just chosen a new manager hides all indices until it has read its state again, and answers 404 to a request
        that names an index. A request with `ignore_unavailable` waits in such a cluster, and gets 503 if the wait is too long.

        Raises:
            EngineResponseError: 503, because the index exists or the cluster is not ready; the request may be repeated.
        """
        if not (name := server_errors.missing_index(error)):
            return
        try:
            params = {"ignore_unavailable": "true"}
            aliases = self._send(replace(request, method="GET", path=f"/{quote(name)}/_alias", params=params, data=None))
        except EngineResponseError as again:
            if retries.is_temporary(again):
                raise
            return  # a role that may not ask: the first answer is all there is
        if aliases:
            reason, status = f"the cluster was not ready and did not find {name}, which exists", HTTPStatus.SERVICE_UNAVAILABLE
            raise EngineResponseError(status, reason, error.body, hint="Repeat the command.") from error

    def _parse(self, status: int, text: str, method: str, path: str, url: str) -> Any:
        """The parsed value of a response; a response with an error status is raised as an exception."""
        request, succeeded = f"{method} {path}", HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        if method == "HEAD" and (succeeded or status == HTTPStatus.NOT_FOUND):
            return succeeded
        try:
            answer = payloads.decode(text)
        except (ValueError, RecursionError) as error:
            if succeeded:
                message = f"{url} answered {request}, but not in JSON."
                raise EngineError(message, server_errors.NOT_OURS) from error
            answer = None
        if not succeeded:
            raise server_errors.from_response(status, answer, text, url, request, self.product)
        if not isinstance(answer, list if path.startswith("/_cat/") else dict):
            raise NotOpenSearch(url, request, answer, HTTPStatus.OK)
        return answer


def blamed_server(error: Exception) -> EngineError | None:
    """The error that blames a server for an exception, because an answer of the server is malformed; None: the fault is in termweave itself."""
    errors = (engine._last_answers.blamed(error, engine.url) for engine in list(_ENGINES))  # noqa: SLF001 - of this module
    return next((each for each in errors if each is not None), None)


def _close_after_fork() -> None:
    """Close the parent's connections in a forked child: on a shared connection each process would read the other's responses."""
    for engine in list(_ENGINES):
        engine.close()


os.register_at_fork(after_in_child=_close_after_fork)


def connect(settings: Settings, *, pool_maxsize: int = 8) -> Engine:
    """Connect to the server that the settings name, else to the running embedded node. No request is sent yet.

    Args:
        settings: Addresses, credentials, certificates, timeout, compression.
        pool_maxsize: Number of connections that are kept to each address; at least the number of threads that send (opensearch-py's default is 1).

    Raises:
        EngineUnreachable: No address is given and no embedded node runs.
        UsageError: The address is not valid, or credentials or certificates cannot be used.
    """
    url = settings.url
    if url is None:
        from termweave.engine.embedded import node  # noqa: PLC0415 - psutil, only where no address is given

        if (state := node.running()) is None:
            hint = "Start the embedded node with: termweave node start; or give --url."
            raise EngineUnreachable("No address of an OpenSearch is given, and no embedded node is running.", hint)
        url = state.url
    return Engine(Access(credentials.addresses(settings, url), settings.timeout, pool_maxsize, settings.compress))
