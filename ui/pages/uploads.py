"""Files of forms: their bytes, and errors that name the file as the user knows it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.datastructures import UploadFile

from termweave.corpora.formats.compression import ReadingLimits, limited
from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.datastructures import FormData


#: A form has at most 16 MiB; packed, that could be terabytes. A line of JSON takes up to 30 times its bytes.
LIMITS = ReadingLimits(unpacked=64_000_000, lines=200_000, line=1_000_000)


def bytes_of(form: FormData, field: str) -> bytes:
    """The content of an uploaded file; b"" for none."""
    file = form.get(field)
    return file.file.read() if isinstance(file, UploadFile) else b""


@contextmanager
def named(*places: Path | str) -> Iterator[None]:
    """Read an upload: with limits, and with "The file" in errors, not the place where it was put.

    A place may be a part of a later one, not of an earlier one.
    """
    try:
        with limited(LIMITS):
            yield
    except TermweaveError as error:
        for place in places:
            error.message = error.message.replace(str(place), "The file")
        raise
