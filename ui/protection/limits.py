"""Limits on how many requests a client sends, and on how long a request may take to arrive, to be answered, and to have its answer read."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from threading import Lock
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Send

#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Requests that one client may send at once, and how many more each second.
BURST, EACH_SECOND = 2_000, 500
#: Wrong tokens that one client may give at once, and how many more each second.
TRIES, TRIES_EACH_SECOND = 10, 0.1
#: Seconds that a client with too many requests or wrong tokens waits for each answer that says so.
SLOWED = 0.5
#: Clients that are remembered; the one that was silent longest is forgotten first.
_ADDRESSES = 10_000
#: All addresses of this machine.
HERE = "this machine"
#: Bytes of a request's body, and seconds in which it must have arrived.
LARGEST, BODY_WITHIN = 16 << 20, 60.0
TOO_LARGE = f"The request has more than {LARGEST >> 20} MiB."
#: Seconds in which a request must be answered.
ANSWER_WITHIN = 120.0
#: Seconds that a connection may stay open without a request: otherwise a few hundred silent ones would lock everybody out.
SILENT_FOR = 15.0
#: Bytes of an answer that a client takes in this time, if there are so many.
TAKEN = 16 << 10
#: Connections that are answered at the same time; more get 503.
AT_ONCE = 256
#: Connections that one address may have open; this machine and proxies, for whom many clients ask, may have more.
FROM_ONE, FROM_HERE = 64, 2 * AT_ONCE
#: Answers that came too late, until their threads end: asyncio itself keeps no task alive.
_LATE: set[asyncio.Task[None]] = set()


@lru_cache(maxsize=_ADDRESSES)
def network(address: str) -> str:
    """The part that all addresses of a client share: `HERE` for this machine, the first 64 bits of an IPv6 address, else the whole address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.is_loopback:
        return HERE
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else str(parsed)


class RateLimit:
    """A rate limit for each client, by a bucket of tokens: each request takes one, and tokens come back at a fixed rate."""

    def __init__(self, burst: float, each_second: float) -> None:
        self._burst, self._rate = burst, each_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def allows(self, request: Request) -> bool:
        """Take a token from the bucket of the request's client; False if none is left. All clients without an address share one bucket."""
        client = network(request.client.host) if request.client else ""
        with self._lock:  # forms are answered by several threads
            now = time.monotonic()
            left, last = self._buckets.pop(client, (self._burst, now))
            left = min(self._burst, left + (now - last) * self._rate)
            self._buckets[client] = (left - 1 if left >= 1 else left, now)
            if len(self._buckets) > _ADDRESSES:
                self._buckets.popitem(last=False)
            return left >= 1


def received(receive: Receive) -> Receive:
    """Wrap an ASGI `receive` so that a body must arrive within `BODY_WITHIN` seconds and be no larger than `LARGEST`, whatever its header says.

    Raises:
        HTTPException: The wrapped function raises it for a body that arrives too slowly or is too large.
    """
    complete, size, until = False, 0, time.monotonic() + BODY_WITHIN

    async def part() -> Message:
        nonlocal complete, size
        if complete:  # only "http.disconnect" can follow, whenever that is
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            headers = {"connection": "close"}
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive", headers) from None
        size += len(message.get("body", b""))
        if size > LARGEST:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)
        complete = not message.get("more_body", False)
        return message

    return part


async def answer_in_time(app: ASGIApp, request: Request, receive: Receive, send: Send, problem: Callable[..., Response]) -> None:
    """Let the application answer; if it has not begun to after `ANSWER_WITHIN` seconds, send the error that `problem` makes instead.

    The thread that works on a late answer cannot be ended; its answer is dropped.
    """
    begun = late = False

    async def send_unless_late(message: Message) -> None:
        nonlocal begun
        if not late:
            begun = True
            await send(message)

    async def run() -> None:
        await app(request.scope, receive, send_unless_late)

    answering = asyncio.create_task(run())
    try:
        await asyncio.wait({answering}, timeout=ANSWER_WITHIN)
        if answering.done() or begun:
            await answering
            return
    except asyncio.CancelledError:
        answering.cancel()
        raise
    late = True
    _LATE.add(answering)
    answering.add_done_callback(_LATE.discard)
    hint = "Ask for less." if request.method in SAFE else "The change may still be made: look before you send it again."
    message = f"The answer took more than {ANSWER_WITHIN:g} seconds."
    await problem(request, HTTPStatus.GATEWAY_TIMEOUT, message, hint)(request.scope, receive, send)


class ImpatientProtocol(H11Protocol):
    """The HTTP protocol of uvicorn, but with time-outs: closes a connection whose request does not arrive, or whose client does not read the answer."""

    #: Connections that one address may have open.
    most = FROM_ONE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time-out of a new connection, or abort the connection if the client's address has too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        trusted = self.config.proxy_headers and address in self.config.forwarded_allow_ips
        others = [client[0] for other in self.connections if (client := getattr(other, "client", None))]
        connections = sum(network(other) == network(address) for other in others)
        if connections > (FROM_HERE if trusted or network(address) == HERE else self.most):
            transport.abort()
        else:
            self._look_later(None)

    def _look_later(self, last: object) -> None:
        self.loop.call_later(SILENT_FOR, self._look, last, self.transport.get_write_buffer_size())

    def _look(self, last: object, unsent: int) -> None:
        """Check the connection: close it if no request came since the last check, and abort it if the client does not read the answer.

        Closing alone is not enough for the latter: a closed transport still waits until the client has read everything.

        Args:
            last: The request-response cycle at the last check; None: there was none.
            unsent: How many bytes of answers waited for the client at the last check.
        """
        cycle, waiting = self.cycle, self.transport.get_write_buffer_size()
        if cycle is last and waiting > max(0, unsent - TAKEN) and unsent:
            self.transport.abort()
        elif waiting or not (self.transport.is_closing() or (cycle is last and (cycle is None or cycle.response_complete))):
            self._look_later(cycle)
        else:
            self.transport.close()


class ModelServerProtocol(ImpatientProtocol):
    """`ImpatientProtocol` for a model server, with more connections per address: one cluster node asks for many clients, on 100 for each model."""

    most = FROM_HERE
