"""The web application of `termweave serve`: its routes, the page `/login` where a user enters the token of the server, and its answers to errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from termweave.search.results.pictures import shade
from termweave.ui import api
from termweave.ui.jobs import JobBoard
from termweave.ui.pages import book_page, generations_page, job_pages, judge_page, search_page
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.protection.request_filter import RequestFilter
from termweave.ui.protection.sessions import Sessions
from termweave.ui.rendering import FOLDER, error_handlers, local_path, page, problem, see_other, status_of
from termweave.ui.workspace import NoIndexYet, Workspace

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request

    from termweave.engine import Engine
    from termweave.errors import TermweaveError
    from termweave.ui.serve_options import ServeOptions

#: Steps of the shades of words. A strict Content-Security-Policy allows no style in a tag, so each shade is a class.
SHADES = 20


def create(engine: Engine, options: ServeOptions) -> RequestFilter:
    """Make the web application that shows the indices of a search server, with its protection around it."""
    app = Starlette(
        routes=[
            Route("/", lambda _: see_other("/search")),
            Route("/search", search_page.show),
            *judge_page.routes(),
            *book_page.routes(),
            *job_pages.routes(),
            *generations_page.routes(),
            Route("/login", _sign_in_page, methods=["GET"]),
            form_route("/login", _sign_in, changes=False),
            *api.routes(),
            Route("/static/shades.css", _shades),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        exception_handlers=error_handlers(
            _failed, problem, "The search is at /search, and '/api/openapi.json' lists the addresses of the API."
        ),
    )
    app.router.redirect_slashes = False  # such a redirect would name the host that the request named
    app.state.workspace = Workspace(engine, options)
    app.state.sessions = Sessions(options.token)
    app.state.jobs = JobBoard()
    app.state.warm, app.state.close = app.state.workspace.warm, app.state.jobs.close
    return RequestFilter(app, options)


def _shades(_: Request) -> Response:
    """Answer with a stylesheet: one CSS class for each shade of a word, in the colours of `search --html`."""
    rules = [f".s{step}{{background:{shade(step / SHADES)}}}" for step in range(1, SHADES + 1)]
    return Response("\n".join(rules), media_type="text/css", headers={"cache-control": "max-age=3600"})


def _failed(request: Request, error: TermweaveError) -> Response:
    if isinstance(error, NoIndexYet) and not request.scope["path"].startswith("/api/"):
        return page(request, "welcome.html", {"bare": True, "server": request.app.state.workspace.engine.url})
    return problem(request, status_of(error), error.message, error.hint)


def _sign_in(request: Request, form: FormData) -> Response:
    sessions: Sessions = request.app.state.sessions
    if not sessions.is_token(text_of(form, "token").strip()):
        if not sessions.tries.allows(request):
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tokens: wait a minute", {"retry-after": "60"})
        return _login(request, text_of(form, "next"), "The token is wrong.", HTTPStatus.UNAUTHORIZED)
    answer = see_other(local_path(text_of(form, "next")) or "/")
    sessions.begin(request, answer)
    return answer


def _sign_in_page(request: Request) -> Response:
    lost = "What you sent was not stored: sign in and send it again." if request.query_params.get("lost") else ""
    return _login(request, request.query_params.get("next", ""), lost)


def _login(request: Request, after: str, error: str, status: int = HTTPStatus.OK) -> Response:
    """The page on which a user enters the token. `after` is the path to which the browser goes once the token is right."""
    return page(request, "login.html", {"bare": True, "next": local_path(after), "error": error}, status)
