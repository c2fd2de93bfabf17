"""`/login`: where a browser gives the token of the server."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import Route

from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.rendering import local_path, page, see_other

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.ui.protection.sessions import Sessions


def routes() -> list[Route]:
    """The page and its form."""

    def sign_in(request: Request, form: FormData) -> Response:
        sessions: Sessions = request.app.state.sessions
        if not sessions.is_token(text_of(form, "token").strip()):
            if not sessions.tries.allows(request):
                raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tokens: wait a minute", {"retry-after": "60"})
            return _page(request, text_of(form, "next"), "The token is wrong.", HTTPStatus.UNAUTHORIZED)
        answer = see_other(local_path(text_of(form, "next")) or "/")
        sessions.begin(request, answer)
        return answer

    return [Route("/login", _show, methods=["GET"]), form_route("/login", sign_in, changes=False)]


def _show(request: Request) -> Response:
    given = request.query_params
    return _page(
        request, given.get("next", ""), "What you sent was not stored: sign in and send it again." if given.get("lost") else ""
    )


def _page(request: Request, after: str, error: str, status: int = HTTPStatus.OK) -> Response:
    """The page. `after` is where the browser goes afterwards."""
    return page(request, "login.html", {"bare": True, "next": local_path(after), "error": error}, status)
