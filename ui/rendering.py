"""Answers as HTML and JSON: templates that escape every value, errors as message and hint like on the command line, and addresses of pages.

An address of a page can be shared: its query string holds everything on which the page depends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from termweave import __version__
from termweave.engine.client.connection import blamed_server
from termweave.errors import EngineError, EngineUnreachable, InputError, TermweaveError, UsageError
from termweave.search.results.pictures import allowed

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

FOLDER = Path(__file__).parent
#: The status of an answer that nobody waits for, as nginx has it.
CLIENT_GONE = 499
#: The kinds of errors, the special ones first, and the status of an answer.
_STATUS: tuple[tuple[Any, HTTPStatus], ...] = (
    ((UsageError, InputError), HTTPStatus.BAD_REQUEST),
    (EngineUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineError, HTTPStatus.BAD_GATEWAY),
)

#: The pages of the navigation, with their addresses.
PAGES = {name: f"/{name.lower()}" for name in ("Search", "Judge", "Book", "Evaluate", "Tune", "Learn", "Generations")}
#: The headings of pages that report an error, where the name of the status would say little.
_TITLES = {
    HTTPStatus.BAD_REQUEST: "This cannot be done",
    HTTPStatus.FORBIDDEN: "Refused",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.BAD_GATEWAY: "OpenSearch answered with an error",
    HTTPStatus.GATEWAY_TIMEOUT: "This takes too long",
    HTTPStatus.SERVICE_UNAVAILABLE: "OpenSearch does not answer",
}

#: A path on this server, in ASCII as browsers send it, that fits into another address. After "//" and "/\\" browsers read the name of a host.
_LOCAL = re.compile(r"/(?![/\\])[!-~]{0,8000}")
_FILES = FileSystemLoader(FOLDER / "html")
_TEMPLATES = Environment(loader=_FILES, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
_TEMPLATES.globals |= {"pages": PAGES, "version": __version__}


def page(request: Request, template: str, values: Mapping[str, Any], status: int = HTTPStatus.OK) -> HTMLResponse:
    """Make an HTML page from a template.

    Args:
        request: The request to answer.
        template: Name of the file in `ui/html/`.
        values: The values of the template, which are escaped; a true "bare" leaves the navigation out.
        status: HTTP status of the answer.
    """
    app = request.scope.get("app")  # none where the guard refuses a request
    read_only = app is not None and app.state.workspace.options.read_only
    of_request = {"path": request.scope["path"], "query": request.query_params.get("q", ""), "read_only": read_only}
    context = {**of_request, "index": "", "bare": False, "names": (), **values}
    has_navigation = status < HTTPStatus.INTERNAL_SERVER_ERROR and not context["bare"]
    if has_navigation and app is not None and app.state.sessions.signed_in(request):  # others do not learn the names
        with suppress(TermweaveError):
            context["names"] = app.state.workspace.names()
    return HTMLResponse(allowed(_TEMPLATES.get_template(template).render(context)), status_code=status)


def data(values: Mapping[str, Any], status: int = HTTPStatus.OK) -> Response:
    """Make an answer whose body is JSON."""
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return Response(orjson.dumps(values, option=options), media_type="application/json", status_code=status)


def status_of(error: TermweaveError) -> HTTPStatus:
    """The HTTP status of the answer that reports an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)


def problem(request: Request, status: int, message: str, hint: str = "") -> Response:
    """Make the answer that reports an error: JSON for paths below /api/, else a page."""
    if request.scope["path"].startswith("/api/"):
        return data({"schema": "termweave.error/1", "error": message, "hint": hint}, status)
    title = _TITLES.get(HTTPStatus(status), HTTPStatus(status).phrase)
    return page(request, "problem.html", {"title": title, "message": message, "hint": hint}, status)


def error_handlers(
    failed: Callable[..., Response], problem: Callable[..., Response], addresses: str
) -> dict[Any, Callable[..., Response]]:
    """Make the error handlers of a Starlette application: kind of error -> function that answers it.

    Args:
        failed: Makes the answer to a `TermweaveError`, about which the user can do something; takes request and error.
        problem: Makes the answer to any other error; takes request, status, message and hint.
        addresses: A sentence that names addresses that exist, for the answer 404.
    """

    def refused(request: Request, error: HTTPException) -> Response:
        """Answer an HTTP error: unknown address, wrong method, a body that is too large or too slow, or a refused request."""
        if error.status_code == HTTPStatus.NOT_FOUND:
            return problem(request, error.status_code, f"There is nothing at {request.scope['path']}.", addresses)
        answer = problem(request, error.status_code, f"{error.detail.removesuffix('.')}.")
        answer.headers.update(error.headers or {})
        return answer

    def fault(request: Request, error: Exception) -> Response:
        """Answer a fault in termweave, or an invalid answer of the search server. Starlette raises the error again, so that the log has a traceback."""
        if (blamed := blamed_server(error)) is not None:
            return failed(request, blamed)
        hint = "Its details are in the log of 'termweave serve'."
        return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "A fault in termweave itself.", hint)

    def gone(*_: object) -> Response:
        return Response(status_code=CLIENT_GONE)

    return {TermweaveError: failed, HTTPException: refused, ClientDisconnect: gone, Exception: fault}


class PageAddress:
    """The address of a page, from which links with changed parameters are made.

    Args:
        path: Path of the address.
        query: The query string of the request.

    Attributes:
        pairs: Name and value of each parameter that is not blank.
    """

    def __init__(self, path: str, query: QueryParams) -> None:
        self._path = path
        self.pairs = [(name, value) for name, value in query.multi_items() if value.strip()]

    def having(self, **changes: object) -> str:
        """The address with some parameters replaced, or removed where the value is None. A trailing underscore of a name is dropped: ``from_``."""
        names = {name.rstrip("_"): value for name, value in changes.items()}
        pairs = [pair for pair in self.pairs if pair[0] not in names]
        return page_address(self._path, [*pairs, *((name, str(value)) for name, value in names.items() if value is not None)])

    def adding(self, name: str, value: str) -> str:
        """The address with one more value of a parameter, without `from`: hits are shown from the first page on."""
        pairs = [pair for pair in self.pairs if pair[0] != "from" and pair != (name, value)]
        return page_address(self._path, [*pairs, (name, value)])

    def without(self, name: str, value: str) -> str:
        """The address without one value of a parameter, and without `from`: hits are shown from the first page on."""
        return page_address(self._path, [pair for pair in self.pairs if pair != (name, value) and pair[0] != "from"])


def page_address(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Join a path and parameters (name, value) into an address with a query string."""
    return f"{path}?{urlencode(pairs)}" if pairs else path


def local_path(text: str) -> str:
    """Return the text if it is a path on this server, perhaps with a query string; else "", because the text may lead to another site."""
    return text if _LOCAL.fullmatch(text) else ""


def see_other(path: str, **parameters: object) -> Response:
    """Make the answer 303 See Other, which sends the browser from a form to a page with these parameters."""
    pairs = [(name, str(value)) for name, value in parameters.items()]
    return RedirectResponse(page_address(path, pairs), status_code=HTTPStatus.SEE_OTHER)
