"""Forms: routes that take them, their fields and files, and errors that name a file as the user knows it."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.routing import Route

from termweave.corpora.formats.compression import ReadingLimits, limited
from termweave.errors import TermweaveError
from termweave.support import private_files
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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


def text_of(form: Mapping[str, Any], name: str) -> str:
    """A field of a form as text; "" if it is missing or a file."""
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def bytes_of(form: FormData, field: str) -> bytes:
    """The content of an uploaded file; b"" for none."""
    file = form.get(field)
    return file.file.read() if isinstance(file, UploadFile) else b""


@contextmanager
def uploaded(content: bytes, called: str = "The file") -> Iterator[Path]:
    """Give an upload as a file to read, with limits; errors name it as the user knows it, not by the place where it lies."""
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        path = Path(folder) / "upload"
        path.write_bytes(content)
        try:
            with limited(LIMITS):
                yield path
        except TermweaveError as error:
            error.message = error.message.replace(str(path), called)
            raise
