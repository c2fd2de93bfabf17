"""`/login`: where a browser gives the token of the server. And the check that every form passes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Route

from termweave.ui.addresses import see_other
from termweave.ui.guard import TRIES, TRIES_EACH_SECOND, RateLimit, client_of
from termweave.ui.rendering import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.ui.sessions import Sessions


def form_route(path: str, answer: Callable[[Request, FormData], Response], *, changes: bool = True) -> Route:
    """A route that takes a form.

    Args:
        path: The path.
        answer: Gets the request and the form, after the check of its CSRF token, in a thread.
        changes: Whether it changes something, so that a read-only server refuses it.
    """

    async def checked(request: Request) -> Response:
        if changes and request.app.state.workspace.options.read_only:
            raise HTTPException(HTTPStatus.FORBIDDEN, "This server is read-only")
        form = await _form(request)
        try:
            if not sessions(request).is_own_form(request, form):
                raise HTTPException(HTTPStatus.FORBIDDEN, "The form is not of this session: open its page again")
            return await run_in_threadpool(answer, request, form)
        finally:
            await form.close()

    return Route(path, checked, methods=["POST"])


async def _form(request: Request) -> FormData:
    """The form of a request. Its texts are UTF-8: other encodings of Python fail in ways of their own, or make characters that are none."""
    try:
        charset = parse_options_header(request.headers.get("content-type", ""))[1].get(b"charset", b"utf-8")
        if charset.lower() in {b"utf-8", b"utf8"}:
            return await request.form(max_files=1, max_fields=1_000)
    except (ValueError, LookupError):
        pass
    raise HTTPException(HTTPStatus.BAD_REQUEST, "The form cannot be read: send it as UTF-8")


def sessions(request: Request) -> Sessions:
    """The sessions of the application."""
    made: Sessions = request.app.state.sessions
    return made


def routes() -> list[Route]:
    """The page and its form."""
    tries = RateLimit(TRIES, TRIES_EACH_SECOND)

    def give(request: Request, form: FormData) -> Response:
        if not tries.allows(client_of(request)):
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Too many tries: wait a minute", {"retry-after": "60"})
        if not sessions(request).is_token(str(form.get("token", "")).strip()):
            return _page(request, "The token is wrong.", HTTPStatus.UNAUTHORIZED)
        sessions(request).sign_in(request)
        return see_other("/")

    return [Route("/login", _page, methods=["GET"]), form_route("/login", give, changes=False)]


def _page(request: Request, error: str = "", status: int = HTTPStatus.OK) -> Response:
    return page(request, "login.html", {"csrf": sessions(request).csrf(request), "error": error}, status)
