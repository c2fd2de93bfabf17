"""Read one PDF or office file: it is one document, whose id is the file's name. Folders of them are read by `text_folder`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines, office
from termweave.corpora.formats.fields import BadLine
from termweave.errors import UsageError
from termweave.records import Document
from termweave.support.extras import install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress, Reading

_PDF, _ZIP = b"%PDF-", b"PK\x03\x04"
#: Main part of an office file -> the suffix of such files.
_PARTS = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "xl/workbook.xml": ".xlsx"}


def kind_of(path: Path) -> str:
    """The suffix that the content of a file would have; "" if it is neither a PDF nor an office file."""
    start = lines.head(path)
    if start.startswith(_PDF):
        return ".pdf"
    if not start.startswith(_ZIP):
        return ""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return ""
    return next((kind for part, kind in _PARTS.items() if part in names), "")


class OfficeFile(FileSource):
    """A PDF or office file: a `Source` of one document, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a PDF, .docx, .pptx or .xlsx file"
    KIND: ClassVar[str] = "office/1"
    SEEKS: ClassVar[bool] = True

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        super().__init__(path, reading)
        if not office.readable():
            raise UsageError(f"{self.shown} is a PDF or office file, which needs more packages.", f"Run `{install('office')}`.")

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the content of a file is that of a PDF or office file, compressed or not."""
        return Path(spec).is_file() and kind_of(Path(spec)) != ""

    @property
    def remarks(self) -> list[str]:
        """What is read as what."""
        return [f"{self.shown} is one document; id = its name. Searches return parts of it with --passage-size 120."]

    def entries(self, progress: Progress | None) -> Iterator[tuple[None, Document | BadLine]]:
        """The file as one document."""
        with office.Extractor() as extractor:
            try:
                title, text = extractor.read(self.path, kind_of(self.path))
            except BadLine as bad:
                yield None, bad
            else:
                yield None, Document(self.name, text, title, {}, 1)
        if progress:
            progress(self.size)
