"""Files of forms: their bytes, and errors that name the file as the user knows it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.datastructures import UploadFile

from termweave.engine.index_source.ubi import PREFIX
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
def named(path: Path) -> Iterator[None]:
    """Say "The file" in errors, not the place where an upload was put."""
    try:
        yield
    except TermweaveError as error:
        error.message = error.message.replace(str(path), "The file").replace(f"{PREFIX}{path.parent}", "The file")
        raise
