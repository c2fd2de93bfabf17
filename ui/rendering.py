"""Answers as HTML and JSON: templates that escape every value, and errors as the two sentences of the command line."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import orjson
from starlette.responses import HTMLResponse, Response

from termweave import __version__
from termweave.errors import EngineError, EngineUnreachable, InputError, UsageError
from termweave.search.render.html import allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from termweave.errors import TermweaveError

FOLDER = Path(__file__).parent
#: The kinds of errors, the special ones first, and the status of an answer.
_STATUS = (
    (UsageError, HTTPStatus.BAD_REQUEST),
    (InputError, HTTPStatus.BAD_REQUEST),
    (EngineUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineError, HTTPStatus.BAD_GATEWAY),
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
        values: The values of the template, which are escaped.
        status: Status of the answer.
    """
    app = request.scope.get("app")  # none where the guard refuses a request
    read_only = app is not None and app.state.workspace.options.read_only
    context = {"path": request.scope["path"], "version": __version__, "read_only": read_only, "index": "", **values}
    return HTMLResponse(allowed(_templates().get_template(template).render(context)), status_code=status)


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
