"""The one door to an OpenSearch: which server, and how a call goes through; how to prove who we are is `access`, what failed `failures`.

opensearch-py (3.2.0) is typed `Any` throughout and raises some twenty exceptions; the rest of termweave sees `Engine` and two
exceptions only. Requests go through the client's connection, which knows about certificates and signatures, and not through its
transport, which chooses among servers and serializers: there is one server, and orjson is six times as fast as theirs.
"""

from __future__ import annotations

import logging
import os
from functools import cache, cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from termweave.engine import access, failures
from termweave.engine.capabilities import probe
from termweave.engine.failures import EngineResponseError, NotOpenSearch
from termweave.errors import EngineError, EngineUnreachable
from termweave.words import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.records import Capabilities
    from termweave.settings import Settings

#: Calls that change nothing are sent again after a lost connection or one of these answers.
_RETRIED_STATUS = frozenset({429, 502, 503, 504})
_ATTEMPTS = 4
#: What an error says is read here, whatever it is: opensearch-py (3.2.0) takes all JSON for an object.
_EVERY_STATUS = range(1000)
#: Endpoints whose POST changes nothing.
_READING = frozenset({"_search", "_msearch", "_mget", "_count", "_analyze", "_validate", "_refresh", "_termvectors"})
#: Every engine there is; see `_forked`.
_ENGINES: WeakSet[Engine] = WeakSet()


class Engine:
    """A connected OpenSearch; threads may share it, and processes that fork.

    Attributes:
        url: Address without credentials, for messages.
        client: The raw `opensearchpy.OpenSearch`.
    """

    def __init__(self, client: Any, url: str) -> None:
        self.client = client
        self.url = url
        _ENGINES.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine({self.url!r})"

    def close(self) -> None:
        """Give the connections back."""
        self.client.transport.close()

    @cached_property
    def capabilities(self) -> Capabilities:
        """What this server can do, asked once."""
        return probe(self)

    def of_indices(self, path: str, kind: str, *, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What indices have of a kind: ``{index: {kind: ...}}``.

        Nearly every verb begins with such a question, so that here it comes out whether an OpenSearch is asked: what answers 200
        to any address gives no error.

        Args:
            path: ``/NAME/_alias``, ``/NAME/_mapping``.
            kind: "aliases", "mappings".
            params: As of `request`, whose errors this has, too.

        Raises:
            NotOpenSearch: The answer says something else.
        """
        found: dict[str, Any] = self.request("GET", path, params=params)
        if not all(isinstance(each, dict) and kind in each for each in found.values()):
            raise NotOpenSearch(self.url, f"GET {path}", found, HTTPStatus.OK)
        return found

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
        """One call to the engine.

        Args:
            method: "GET", "POST" ...
            path: Path with its leading slash, already escaped (see `quote`).
            params: Query parameters; True and False become "true" and "false".
            body: A JSON value, or bytes that are sent as they are (NDJSON).
            timeout: Seconds, instead of the setting's.
            retry: Send again after a lost connection or 429, 502, 503, 504; default: only calls that change nothing.

        Returns:
            The answer, parsed: a mapping, of `_cat` a list; for HEAD a bool.

        Raises:
            EngineUnreachable: Nothing answered.
            EngineResponseError: The engine answered with an error.
            NotOpenSearch: Something else did.
            EngineError: The answer is no JSON.
        """
        data, params = _encode(body), _plain(params)
        # `_cat` answers in text unless asked; everything else is JSON anyway.
        headers = {"accept": "application/json", "content-type": _content_type(path, data)}
        try:
            return self._once(method, path, params, data, timeout, headers)
        except EngineError as error:
            if not (_may_pass(error) and (_changes_nothing(method, path) if retry is None else retry)):
                raise
            failed = error
        # tenacity costs more than all else that is done here: it is called when something has failed
        return _patient()(_after(failed, lambda: self._once(method, path, params, data, timeout, headers)))

    def _once(
        self,
        method: str,
        path: str,
        params: dict[str, Any] | None,
        data: bytes | None,
        timeout: float | None,
        headers: dict[str, str],
    ) -> Any:
        connection = self.client.transport.get_connection()
        try:
            status, _, text = connection.perform_request(
                method, path, params, data, timeout=timeout, ignore=_EVERY_STATUS, headers=headers
            )
        except Exception as error:
            said = failures.said(error, self.url, f"{method} {path}")
            if said is None:
                raise
            raise said from error
        return self._understood(status, text, method, path)

    def _understood(self, status: int, text: str, method: str, path: str) -> Any:
        request, succeeded = f"{method} {path}", HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        if method == "HEAD" and (succeeded or status == HTTPStatus.NOT_FOUND):
            return succeeded
        try:
            answer = _parsed(text)
        except (ValueError, RecursionError) as error:
            if succeeded:
                why = f"{self.url} answered {request}, but not in JSON."
                raise EngineError(why, "Is it an OpenSearch, or a proxy before one?") from error
            answer = None
        if not succeeded:
            raise failures.answered(status, answer, text, self.url, request)
        if not isinstance(answer, list if path.startswith("/_cat/") else dict):
            raise NotOpenSearch(self.url, request, answer, HTTPStatus.OK)
        return answer


def _forked() -> None:
    """Leave the parent's connections to it, in a process that has just been forked: on one line both would read each other's answers."""
    for engine in list(_ENGINES):
        engine.close()


os.register_at_fork(after_in_child=_forked)


def quote(part: str) -> str:
    """Escape one part of a path: an index name, a document id (any text)."""
    from urllib.parse import quote as escape  # noqa: PLC0415

    return escape(part, safe="")


def target(settings: Settings) -> str:
    """The address to talk to: the settings', else the running embedded node's.

    Raises:
        EngineUnreachable: Neither is there.
    """
    if settings.url is not None:
        return settings.url
    from termweave.engine import node  # noqa: PLC0415 - psutil, only where no address is given

    found = node.running()
    if found is None:
        raise EngineUnreachable(
            "No OpenSearch was named, and no embedded node is running.", "Start one with: termweave node start (or give --url)."
        )
    return found.url


def connect(settings: Settings, *, pool_maxsize: int = 8, compress: bool = False) -> Engine:
    """Connect to the OpenSearch that the settings mean. Nothing is sent yet.

    Args:
        settings: Address, credentials, certificates, timeout.
        pool_maxsize: Connections kept; at least the number of threads that send (opensearch-py's default is 1).
        compress: Send bodies as gzip. On loopback and in a data centre that costs more than it saves.

    Raises:
        EngineUnreachable: No address is given and no embedded node runs.
        UsageError: The address or the way to authenticate cannot be meant.
    """
    address = target(settings)
    url, reach = access.options(settings, address)
    import opensearchpy  # noqa: PLC0415 - 150 ms

    # It logs every lost connection as a warning; without a handler Python would print that beside our sentence.
    logging.getLogger("opensearch").addHandler(logging.NullHandler())
    options: dict[str, Any] = {
        "hosts": [url],
        "timeout": settings.timeout,
        "pool_maxsize": pool_maxsize,
        "http_compress": compress,
        "max_retries": 0,  # `Engine.request` retries, with jitter and only what may be sent twice
    }
    return Engine(opensearchpy.OpenSearch(**options, **reach), url)


def _parsed(text: str) -> Any:
    """An answer of JSON; None where it is empty.

    Raises:
        ValueError: It is no JSON.
        RecursionError: It is deeper than any parser goes.
    """
    import orjson  # noqa: PLC0415

    if not text:
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        # Half a character, which JSON lets pass and a document of others may hold: nothing behind this could write it.
        import json  # noqa: PLC0415

        return orjson.loads(readable(json.dumps(json.loads(text), ensure_ascii=False)))


def _changes_nothing(method: str, path: str) -> bool:
    return method in {"GET", "HEAD"} or (method == "POST" and _endpoint(path) in _READING)


def _endpoint(path: str) -> str:
    """The last part of a path: "_search"."""
    return path.partition("?")[0].rsplit("/", 1)[-1]


def _encode(body: Any) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    import orjson  # noqa: PLC0415

    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def _content_type(path: str, data: bytes | None) -> str:
    return "application/x-ndjson" if data is not None and _endpoint(path) in {"_bulk", "_msearch"} else "application/json"


def _plain(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not params:
        return None
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in params.items() if value is not None}


@cache
def _patient() -> Any:
    """What calls again; safe to share between threads."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential  # noqa: PLC0415

    # Full jitter: clients that failed together do not come back together.
    return Retrying(
        retry=retry_if_exception(_may_pass),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        stop=stop_after_attempt(_ATTEMPTS),
        reraise=True,
    )


def _after(error: EngineError, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call whose first attempt has failed already."""
    failed = [error]

    def attempt() -> Any:
        if failed:
            raise failed.pop()
        return call()

    return attempt


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, EngineUnreachable) or (isinstance(error, EngineResponseError) and error.status in _RETRIED_STATUS)
