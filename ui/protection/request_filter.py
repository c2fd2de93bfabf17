"""The outermost layer of the web application: refuse forbidden requests before any page sees them, and add security headers to every answer.

The layer is plain ASGI, so that it also covers static files and addresses that do not exist.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from starlette.datastructures import MutableHeaders, State
from starlette.requests import Request
from starlette.responses import Response

from termweave.ui.protection import limits
from termweave.ui.rendering import local_path, page_address, problem, see_other

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

    from termweave.ui.protection.sessions import Sessions
    from termweave.ui.serve_options import ServeOptions

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
#: A header Host: a name, and perhaps a port.
_HOST = re.compile(r"(.+?)(?::[0-9]+)?")


class RequestFilter:
    """The web application inside its protection: an ASGI application that checks each request and passes it on.

    Args:
        app: The application to protect.
        options: The options of `termweave serve`, with the host names that requests may use. The number of requests of each client is limited
            unless models are served.
        problem: Makes the answer that reports an error; takes request, status, message and hint.
        public: Paths that need no token.
    """

    def __init__(
        self,
        app: Starlette,
        options: ServeOptions,
        *,
        problem: Callable[..., Response] = problem,
        public: Collection[str] = ("/login",),
    ) -> None:
        self._app, self._options, self._problem, self._public = app, options, problem, public
        self._sessions: Sessions = app.state.sessions
        self._requests = None if options.serves_models else limits.RateLimit(limits.BURST, limits.EACH_SECOND)

    @property
    def state(self) -> State:
        """The state of the protected application, such as workspace, sessions and jobs."""
        return self._app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it; add the headers to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == HTTPStatus.TOO_MANY_REQUESTS:
                    await asyncio.sleep(limits.SLOWED)
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "max-age=3600" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        refusal = self._refusal(request)
        if refusal is None:
            await limits.answer_in_time(self._app, request, limits.received(receive), send_with_headers, self._problem)
        else:
            await refusal(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The answer that refuses a request; None: the request is allowed."""
        length = request.headers.get("content-length", "0")
        if _name(request.headers.get("host", "")) not in self._options.hosts:
            message = "This server does not know the name of the host in the address."
            hint = "Open the address that 'termweave serve' printed, or start the server with --name."
            return self._problem(request, HTTPStatus.BAD_REQUEST, message, hint)
        if self._requests is not None and not self._requests.allows(request):
            return self._too_many(request, "Too many requests.", "Wait a second and try again.", 1)
        if not length.isdecimal() or int(length) > limits.LARGEST:
            return self._problem(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limits.TOO_LARGE, "Send it in several parts.")
        reason, hint = forgery(request)
        return self._problem(request, HTTPStatus.FORBIDDEN, reason, hint) if reason else self._unknown(request)

    def _unknown(self, request: Request) -> Response | None:
        """The answer that asks a client for the token; None: the client has given the token, or the path needs none."""
        path = request.scope["path"]  # what the routes see; the URL of a request is made with its header Host
        if self._sessions.signed_in(request) or path in self._public or path.startswith("/static/"):
            return None
        if "authorization" in request.headers and not self._sessions.tries.allows(request):
            return self._too_many(request, "Too many wrong tokens.", "Wait a minute, or send the right one.", 60)
        if "/login" not in self._public or path.startswith("/api/"):  # programs cannot give the token on a page
            hint = "Send the header 'Authorization: Bearer TOKEN'."
            return self._problem(request, HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.", hint)
        return _to_sign_in(request)

    def _too_many(self, request: Request, message: str, hint: str, seconds: int) -> Response:
        answer = self._problem(request, HTTPStatus.TOO_MANY_REQUESTS, message, hint)
        answer.headers["retry-after"] = str(seconds)
        return answer


def _to_sign_in(request: Request) -> Response:
    """Redirect a browser to `/login`, which afterwards leads back to the requested page, or to the page whose form was refused."""
    if "hx-request" in request.headers:  # of the script of a page: the page is loaded again, and asks for the token itself
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"hx-refresh": "true"})
    lost = {} if request.method in limits.SAFE else {"lost": "1"}
    referer = request.headers.get("referer", "").partition("://")[2].partition("/")[2]
    page = page_address(quote(request.scope["path"]), parse_qsl(request.scope["query_string"].decode("latin-1")))
    place = local_path(f"/{referer}" if lost else page)
    return see_other("/login", **({"next": place} if place else {}), **lost)


def forgery(request: Request) -> tuple[str, str]:
    """The reason why a request may be forged by a page of another site (CSRF), and a hint what to do; two empty texts: the request is accepted.

    Links from other sites are accepted. Requests by their scripts, pictures or frames are refused: they could only spy on answers or cause load.

    A browser states in headers which page sent a request, and no script can change these headers. `Sec-Fetch-Site` comes with every request to https and to
    this machine (Chrome 76, Edge 79, Firefox 90, Safari 16.4), `Origin` with every form to any address (Chrome and Safari for ten years,
    Firefox 70). `Sec-Fetch-Site` decides where it is present; else `Origin` is compared with `Host`, which a proxy may have replaced.
    Forms carry no token, as in datasette 1.0 and in Go 1.25 (`http.CrossOriginProtection`; https://words.filippo.io/csrf). Unlike
    in both, a form without either header is refused: an older browser may have sent it. A JSON body needs neither header: no form sends JSON, and
    a script of another site would first have to ask for permission (a CORS preflight), which is not answered.
    """
    headers, safe = request.headers, request.method in limits.SAFE
    site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "").lower()
    link = safe and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    foreign = site not in {None, "same-origin", "none"} and not link
    if not safe and site is None and origin is not None:
        foreign = origin.lower() not in {f"http://{host}", f"https://{host}"}
    if foreign:
        hint = "Open the page on this server. A proxy before it must pass the header Host on."
        return "The request came from a page of another site.", hint
    json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    if not safe and site is None and origin is None and not json:
        hint = "Use a newer browser; a program sends the header Origin, or JSON with 'Content-Type: application/json'."
        return "The request does not say which page sent it.", hint
    return "", ""


def _name(host: str) -> str:
    """The host name in a header Host, in lower case and without the port: "LOCALHOST:80" gives "localhost", "[::1]:80" gives "[::1]"."""
    match = _HOST.fullmatch(host.lower())
    return match[1] if match else ""
