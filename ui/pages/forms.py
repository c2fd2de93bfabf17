"""Forms: routes that take them, their fields and files, and errors that name a file as the user knows it."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.routing import Route

from termweave.corpora.formats.compression import ReadingLimits, limited
from termweave.errors import TermweaveError
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

#: A form has at most 16 MiB; packed, that could be terabytes. A line of JSON takes up to 30 times its bytes.
LIMITS = ReadingLimits(unpacked=64_000_000, lines=200_000, line=1_000_000)


def form_route(path: str, answer: Callable[[Request, FormData], Response], *, changes: bool = True) -> Route:
    """A route that takes a form. `ui.protection.csrf` has refused those of other sites.

    Args:
        path: The path.
        answer: Gets the request and the form, in a thread.
        changes: Whether it changes something, so that a read-only server refuses it.
    """

    async def answer_form(request: Request) -> Response:
        if changes and workspace_of(request).options.read_only:
            raise HTTPException(HTTPStatus.FORBIDDEN, "This server is read-only")
        form = await _form(request)
        try:
            return await run_in_threadpool(answer, request, form)
        finally:
            await form.close()

    return Route(path, answer_form, methods=["POST"])


async def _form(request: Request) -> FormData:
    """The form of a request. Its texts are UTF-8: other encodings of Python fail in ways of their own, or make characters that are none."""
    try:
        charset = parse_options_header(request.headers.get("content-type", ""))[1].get(b"charset", b"utf-8")
        if charset.lower() in {b"utf-8", b"utf8"}:
            return await request.form(max_files=1, max_fields=1_000)
    except (ValueError, LookupError):
        pass
    raise HTTPException(HTTPStatus.BAD_REQUEST, "The form cannot be read: send it as UTF-8")


def text_of(form: FormData, name: str) -> str:
    """A field of a form as text; "" if it is missing or a file."""
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def bytes_of(form: FormData, field: str) -> bytes:
    """The content of an uploaded file; b"" for none."""
    file = form.get(field)
    return file.file.read() if isinstance(file, UploadFile) else b""


@contextmanager
def named(*places: Path | str, called: str = "The file") -> Iterator[None]:
    """Read an upload: with limits, and with what the user calls it in errors, not the place where it was put.

    A place may be a part of a later one, not of an earlier one.
    """
    try:
        with limited(LIMITS):
            yield
    except TermweaveError as error:
        for place in places:
            error.message = error.message.replace(str(place), called)
        raise
