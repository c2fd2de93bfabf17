"""The application: its routes, and what happens to errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from termweave.engine.client.connection import blamed_server
from termweave.errors import TermweaveError
from termweave.search.results.pictures import shade
from termweave.ui.addresses import see_other
from termweave.ui.api import endpoints
from termweave.ui.background.jobs import JobBoard
from termweave.ui.pages import (
    book_page,
    generations_page,
    judge_page,
    learn_page,
    measure_page,
    search_page,
    sign_in,
)
from termweave.ui.protection.request_filter import RequestFilter
from termweave.ui.protection.sessions import Sessions
from termweave.ui.rendering import CLIENT_GONE, FOLDER, page, problem, status_of
from termweave.ui.workspace import NoIndexYet, Workspace

if TYPE_CHECKING:
    from starlette.requests import Request

    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Steps of the shades of words. A strict Content-Security-Policy allows no style in a tag, so each shade is a class.
SHADES = 20


def create(engine: Engine, options: ServeOptions) -> RequestFilter:
    """Make the application for a server."""
    sessions = Sessions(options.token)
    app = Starlette(
        routes=[
            Route("/", _home),
            Route("/search", search_page.show),
            *judge_page.routes(),
            *book_page.routes(),
            *measure_page.routes(),
            *learn_page.routes(),
            *generations_page.routes(),
            *sign_in.routes(),
            *endpoints.routes(),
            Route("/static/shades.css", _shades),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        exception_handlers={
            TermweaveError: _failed,
            HTTPException: _refused,
            ClientDisconnect: lambda *_: Response(status_code=CLIENT_GONE),
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False  # such a redirect would name the host that the request named
    app.state.workspace = Workspace(engine, options)
    app.state.sessions = sessions
    app.state.jobs = JobBoard()
    app.state.warm, app.state.close = app.state.workspace.warm, app.state.jobs.close
    return RequestFilter(app, options, sessions)


def _home(request: Request) -> Response:
    del request
    return see_other("/search")


def _shades(request: Request) -> Response:
    """The shades of words, from the colours of `search --html`."""
    del request
    rules = [f".s{step}{{background:{shade(step / SHADES)}}}" for step in range(1, SHADES + 1)]
    return Response("\n".join(rules), media_type="text/css", headers={"cache-control": "max-age=3600"})


def _failed(request: Request, error: Exception) -> Response:
    """An error that the user can act on."""
    if not isinstance(error, TermweaveError):
        raise error
    if isinstance(error, NoIndexYet) and not request.scope["path"].startswith("/api/"):
        return page(request, "welcome.html", {"bare": True, "server": request.app.state.workspace.engine.url})
    return problem(request, status_of(error), error.message, error.hint)


def _refused(request: Request, error: Exception) -> Response:
    """An address that does not exist, a method that it does not take, a page that was refused."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.scope["path"]
    hint = "'/api/openapi.json' lists the addresses." if path.startswith("/api/") else "The search is at /search."
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(request, error.status_code, f"There is nothing at {path}.", hint)
    answer = problem(request, error.status_code, f"{error.detail.removesuffix('.')}.")
    answer.headers.update(error.headers or {})
    return answer


def _fault(request: Request, error: Exception) -> Response:
    """A fault in termweave itself, or a server that lies. Starlette raises it again afterwards, so that the log has the traceback."""
    if (blamed := blamed_server(error)) is not None:
        return _failed(request, blamed)
    return problem(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "A fault in termweave itself.",
        "Its details are in the log of 'termweave serve'.",
    )
