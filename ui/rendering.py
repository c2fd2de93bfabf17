"""Answers as HTML and JSON: templates that escape every value, and errors as the two sentences of the command line."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import orjson
from starlette.responses import HTMLResponse, Response

from termweave import __version__
from termweave.errors import EngineError, EngineUnreachable, InputError, TermweaveError, UsageError
from termweave.search.results.pictures import allowed
from termweave.ui.addresses import page_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

FOLDER = Path(__file__).parent
#: The status of an answer that nobody waits for, as nginx has it.
CLIENT_GONE = 499
#: The kinds of errors, the special ones first, and the status of an answer.
_STATUS = (
    (UsageError, HTTPStatus.BAD_REQUEST),
    (InputError, HTTPStatus.BAD_REQUEST),
    (EngineUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineError, HTTPStatus.BAD_GATEWAY),
)

#: The pages of the navigation, with their addresses.
PAGES = (
    ("Search", "/search"),
    ("Judge", "/judge"),
    ("Book", "/book"),
    ("Evaluate", "/evaluate"),
    ("Tune", "/tune"),
    ("Learn", "/learn"),
    ("Generations", "/generations"),
)
#: The headings of pages that report an error, where the name of the status would say little.
_TITLES = {
    HTTPStatus.BAD_REQUEST: "This cannot be done",
    HTTPStatus.FORBIDDEN: "Refused",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.BAD_GATEWAY: "OpenSearch answered with an error",
    HTTPStatus.GATEWAY_TIMEOUT: "This takes too long",
    HTTPStatus.SERVICE_UNAVAILABLE: "OpenSearch does not answer",
}


def page(request: Request, template: str, values: Mapping[str, Any], status: int = HTTPStatus.OK) -> HTMLResponse:
    """Make a page.

    Args:
        request: The request that is answered.
        template: Name of the file in `ui/html/`.
        values: The values of the template, which are escaped; "bare" leaves the navigation out.
        status: Status of the answer.
    """
    app = request.scope.get("app")  # none where the guard refuses a request
    read_only = app is not None and app.state.workspace.options.read_only
    context = {
        "path": request.scope["path"],
        "version": __version__,
        "read_only": read_only,
        "index": "",
        "bare": False,
        **values,
    }
    asked = status < HTTPStatus.INTERNAL_SERVER_ERROR and not context["bare"]
    context |= {"pages": PAGES, "names": _names(request) if asked else (), "choose": partial(_with_index, request)}
    return HTMLResponse(allowed(_templates().get_template(template).render(context)), status_code=status)


def _names(request: Request) -> tuple[str, ...]:
    """The indices to choose from, for a client that has given the token; none where they cannot be listed."""
    app = request.scope.get("app")
    if app is None or not app.state.sessions.known(request):
        return ()
    with suppress(TermweaveError):
        names: tuple[str, ...] = app.state.workspace.names()
        return names
    return ()


def _with_index(request: Request, name: str) -> str:
    """The address of the present page with another index, and with the query that was asked."""
    path = request.scope["path"]
    query = request.query_params.get("q", "")
    return page_address(
        path if path in dict(PAGES).values() else "/search", [("index", name), *([("q", query)] if query else [])]
    )


def data(values: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
    """Make an answer in JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return Response(orjson.dumps(values, option=options), media_type="application/json", status_code=status)


def status_of(error: TermweaveError) -> HTTPStatus:
    """The status of the answer that reports an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def problem(request: Request, status: int, message: str, hint: str = "") -> Response:
    """Report an error: as JSON below /api/, else as a page."""
    if request.scope["path"].startswith("/api/"):
        return data({"schema": "termweave.error/1", "error": message, "hint": hint}, status)
    title = _TITLES.get(HTTPStatus(status), HTTPStatus(status).phrase)
    return page(request, "problem.html", {"title": title, "message": message, "hint": hint}, status)


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
