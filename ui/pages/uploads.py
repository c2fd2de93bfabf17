"""Files of forms: their bytes, and errors that name the file as the user knows it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.datastructures import UploadFile

from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.datastructures import FormData


def bytes_of(form: FormData, field: str) -> bytes:
    """The content of an uploaded file; b"" for none."""
    file = form.get(field)
    return file.file.read() if isinstance(file, UploadFile) else b""


@contextmanager
def named(*places: Path | str) -> Iterator[None]:
    """Say "The file" in errors, not the place where an upload was put; a place may be a part of a later one, not of an earlier one."""
    try:
        yield
    except TermweaveError as error:
        for place in places:
            error.message = error.message.replace(str(place), "The file")
        raise
