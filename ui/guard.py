"""What every request passes before a page sees it: host, rate, size, time, origin, token. And the headers that every answer has.

The guard is plain ASGI, so that it also covers static files and addresses that do not exist.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request

from termweave.ui.addresses import see_other
from termweave.ui.rendering import problem

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.datastructures import State
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from termweave.ui.serve_options import ServeOptions
    from termweave.ui.sessions import Sessions

#: No script, style, picture or frame of another place, and nothing inline; forms are sent to this server only.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
#: Bytes of a request's body.
LARGEST = 16 << 20
#: Seconds in which a body must have arrived.
BODY_WITHIN = 60.0
#: Seconds in which a request must be answered.
ANSWER_WITHIN = 120.0
#: Requests that one client may send at once, and how many more each second.
BURST, EACH_SECOND = 2_000, 500
#: Tries of a token that one client may make at once, and how many more each second.
TRIES, TRIES_EACH_SECOND = 10, 0.1
#: Clients that are remembered; the one that was silent longest is forgotten first.
_ADDRESSES = 10_000
#: A header Host: a name, and perhaps a port.
_HOST = re.compile(r"(.+?)(?::[0-9]+)?")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


#: All addresses of this machine.
HERE = "this machine"


@lru_cache(maxsize=_ADDRESSES)
def network(address: str) -> str:
    """What all addresses of one client have in common: `HERE` of this machine, the first half of one of version 6, else the address."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.is_loopback:
        return HERE
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else str(parsed)


def client_of(request: Request) -> str:
    """The client that sent a request; "" if the server does not say."""
    return network(request.client.host) if request.client else ""


class RateLimit:
    """A bucket of tokens for each client."""

    def __init__(self, burst: float, each_second: float) -> None:
        self._burst, self._rate = burst, each_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Take a token of this client; False if there is none left."""
        now = time.monotonic()
        left, last = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - last) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        return left >= 1


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: Starlette, options: ServeOptions, sessions: Sessions) -> None:
        self._app, self._options, self._sessions = app, options, sessions
        self._requests = RateLimit(BURST, EACH_SECOND)
        self._tries = RateLimit(TRIES, TRIES_EACH_SECOND)
        self._unheard: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> State:
        """What the application holds: the workspace, the sessions, the jobs."""
        return self._app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "max-age=3600" if scope["path"].startswith("/static/") else "no-store")
                self._sessions.remember(request, headers)
            await send(message)

        refusal = self._refusal(request)
        if refusal is None:
            await self._answer_in_time(request, _limited(receive), send_with_headers)
        else:
            await refusal(scope, receive, send_with_headers)

    async def _answer_in_time(self, request: Request, receive: Receive, send: Send) -> None:
        """Let the application answer; if it has not begun to within `ANSWER_WITHIN`, say so. Its thread cannot be ended, and is not heard."""
        begun = late = False

        async def heard(message: Message) -> None:
            nonlocal begun
            if not late:
                begun = True
                await send(message)

        answering = asyncio.create_task(self._app(request.scope, receive, heard))
        try:
            await asyncio.wait({answering}, timeout=ANSWER_WITHIN)
            if answering.done() or begun:
                await answering
                return
        except asyncio.CancelledError:
            answering.cancel()
            raise
        late = True
        self._unheard.add(answering)  # asyncio itself keeps no task alive
        answering.add_done_callback(self._unheard.discard)
        hint = "Ask for less." if request.method in _SAFE else "What it changes may still be done: look before you send it again."
        message = f"The answer took more than {ANSWER_WITHIN:g} seconds."
        await problem(request, HTTPStatus.GATEWAY_TIMEOUT, message, hint)(request.scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that no page may see; None for the others."""
        host = request.headers.get("host", "")
        length = request.headers.get("content-length", "0")
        if _name(host) not in self._options.hosts:
            message = "This server does not know the name that the address has."
            hint = "Open the address that 'termweave serve' printed, or start it with --name."
            return problem(request, HTTPStatus.BAD_REQUEST, message, hint)
        if not self._requests.allows(client_of(request)):
            answer = problem(request, HTTPStatus.TOO_MANY_REQUESTS, "Too many requests.", "Wait a second and try again.")
            answer.headers["retry-after"] = "1"
            return answer
        if not length.isdecimal() or int(length) > LARGEST:
            return _too_large(request)
        if _foreign(request, host):
            message = "The request came from a page of another site."
            return problem(request, HTTPStatus.FORBIDDEN, message, "Open the page on this server.")
        return self._unknown(request)

    def _unknown(self, request: Request) -> Response | None:
        """The answer to a client that has not given the token; None for the others."""
        path = request.scope["path"]  # what the routes see; the URL of a request is made with its header Host
        if self._sessions.known(request) or path == "/login" or path.startswith("/static/"):
            return None
        if "authorization" in request.headers and not self._tries.allows(client_of(request)):
            answer = problem(request, HTTPStatus.TOO_MANY_REQUESTS, "Too many tries of the token.", "Wait a minute.")
            answer.headers["retry-after"] = "60"
            return answer
        if path.startswith("/api/"):
            hint = "Send the header 'Authorization: Bearer TOKEN'."
            return problem(request, HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.", hint)
        return see_other("/login")


def _name(host: str) -> str:
    """The name in a header Host, in lower case: "LOCALHOST:80" is "localhost", "[::1]:80" is "[::1]". All of the rest belongs to the name."""
    match = _HOST.fullmatch(host.lower())
    return match[1] if match else ""


def _foreign(request: Request, host: str) -> bool:
    """Whether a page of another site sent a request: a form, or anything that is no link to a page.

    Other sites may link here. A script, a picture or a fetch of theirs would only be used to measure answers or to make work.
    """
    headers = request.headers
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        return request.method not in _SAFE or not link
    if request.method in _SAFE:
        return False
    origin = headers.get("origin")
    return origin is not None and origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}


def _limited(receive: Receive) -> Receive:
    """Count the bytes of a body that says nothing of its length, or not the truth, and the time that it takes."""
    size, whole, until = 0, False, time.monotonic() + BODY_WITHIN

    async def counted() -> Message:
        nonlocal size, whole
        if whole:  # only "http.disconnect" can follow, whenever that is
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive", {"connection": "close"}
            ) from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if size > LARGEST:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request has more than {LARGEST >> 20} MiB")
        return message

    return counted


def _too_large(request: Request) -> Response:
    message = f"The request has more than {LARGEST >> 20} MiB."
    return problem(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, "Send it in several parts.")
