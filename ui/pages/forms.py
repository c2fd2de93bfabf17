"""Forms of the pages: routes that receive a form, its fields and uploaded files, and errors that name an upload as the user knows it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.routing import Route

from termweave.corpora.formats.compression import ReadingLimits, limited
from termweave.errors import TermweaveError
from termweave.support import private_files
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

#: A form has at most 16 MiB; packed, that could be terabytes. A line of JSON takes up to 30 times its bytes.
LIMITS = ReadingLimits(unpacked=64_000_000, lines=200_000, line=1_000_000)


def form_route(path: str, answer: Callable[[Request, FormData], Response], *, changes: bool = True) -> Route:
    """Make a route that receives a form. Forms that other sites send were refused before, by `ui.protection.request_filter.forgery`.

    Args:
        path: Path of the address.
        answer: Function that answers; it is called in a thread with the request and the form.
        changes: Whether the form changes something, so that a read-only server refuses it.
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
    """Read the form of a request, in UTF-8 only: other encodings that Python knows may fail unexpectedly or give invalid characters."""
    try:
        charset = parse_options_header(request.headers.get("content-type", ""))[1].get(b"charset", b"utf-8")
        if charset.lower() in {b"utf-8", b"utf8"}:
            return await request.form(max_files=1, max_fields=1_000)
    except (ValueError, LookupError):
        pass
    raise HTTPException(HTTPStatus.BAD_REQUEST, "The form cannot be read: send it as UTF-8")


def text_of(form: Mapping[str, Any], name: str) -> str:
    """The text of a field of a form; "" if the field is missing or is a file."""
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def bytes_of(form: FormData, field: str) -> bytes:
    """The content of the file that was uploaded in a field of a form; b"" if there is no file."""
    file = form.get(field)
    return file.file.read() if isinstance(file, UploadFile) else b""


@contextmanager
def uploaded(content: bytes, called: str = "The file") -> Iterator[Path]:
    """Yield the path of a temporary file with an uploaded content, with limits on reading; errors name the file by `called`, not by this path."""
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        path = Path(folder) / "upload"
        path.write_bytes(content)
        try:
            with limited(LIMITS):
                yield path
        except TermweaveError as error:
            error.message = error.message.replace(str(path), called)
            raise
