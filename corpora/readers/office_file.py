"""Read one PDF or office file (extra `office`) as one document, whose id is the file's name. `text_folder` reads folders of them.

Files are read in a process of its own with a time limit per file: see `termweave.corpora.formats.office_text`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines
from termweave.corpora.formats.fields import BadLine, attempted
from termweave.errors import UsageError
from termweave.records import Document
from termweave.support.extras import install
from termweave.support.python_processes import PythonProcess, start_python

if TYPE_CHECKING:
    from termweave.corpora.sources import Progress, Reading

#: Suffix -> the module that reads such files.
MODULES = {".pdf": "pypdfium2", ".docx": "docx", ".pptx": "pptx", ".xlsx": "openpyxl"}
#: Seconds after which a file is given up.
SECONDS = 60.0
_PDF, _ZIP = b"%PDF-", b"PK\x03\x04"
#: Main part of an office file -> the suffix of such files.
_PARTS = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "xl/workbook.xml": ".xlsx"}


def kind_of(path: Path) -> str:
    """Tell from the content of a file which suffix it should have, such as ".pdf"; "": the file is neither a PDF nor an office file."""
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
        if not readable():
            raise UsageError(f"{self.shown} is a PDF or office file, which needs more packages.", f"Run `{install('office')}`.")

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the content of a file is that of a PDF or office file, compressed or not."""
        return Path(spec).is_file() and kind_of(Path(spec)) != ""

    @property
    def remarks(self) -> list[str]:
        """A sentence that says that the file is one document, whose id is the file's name."""
        return [f"{self.shown} is one document; id = its name. Searches return parts of it with --passage-size 120."]

    def entries(self, progress: Progress | None) -> Iterator[tuple[None, Document | BadLine]]:
        """Yield the file as one document."""
        with contextlib.closing(Extractor()) as extractor:
            yield None, attempted(extractor.document, self.path, kind_of(self.path), self.name)
        if progress:
            progress(self.size)


def readable() -> bool:
    """Whether the packages of the extra `office` are installed."""
    return all(find_spec(module) is not None for module in MODULES.values())


class Extractor:
    """Reads PDF and office files in a separate process, which is started for the first file and again after a file that made it end."""

    def __init__(self) -> None:
        self._process: PythonProcess | None = None

    def document(self, path: Path, kind: str, name: str) -> Document:
        """Read a file as one document.

        Args:
            path: The file.
            kind: The suffix of such files, a key of `MODULES`.
            name: Id of the document.

        Raises:
            BadLine: The file is encrypted, damaged or too large, or takes too long.
        """
        process, line, began = self._started(), b"", time.monotonic()
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"path": str(path), "kind": kind}).encode() + b"\n")
                process.stdin.flush()
                line = self._line(process)
        except BaseException:  # Ctrl-C: the answer would be read as that of the next file
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()
            late = f"reading it takes more than {SECONDS:.0f} s" if time.monotonic() - began >= SECONDS else ""
            raise BadLine(late or "it is damaged: it ended the program that reads it")
        answer = json.loads(line)
        if "bad" in answer:
            raise BadLine(answer["bad"])
        return Document(name, answer["text"], answer["title"], {}, 1)

    def _started(self) -> PythonProcess:
        if self._process is None or self._process.poll() is not None:
            self.close()
            program = "termweave.corpora.formats.office_text"
            self._process = start_python("-m", program, stderr=subprocess.DEVNULL, start_new_session=True)
        return self._process

    @staticmethod
    def _line(process: PythonProcess) -> bytes:
        """Read the next line that the process writes; the line has no end if the process ended, by itself or because its time was over."""
        assert process.stdout is not None
        timer = Timer(SECONDS, process.kill)
        timer.start()
        try:
            return process.stdout.readline()
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # closes the pipes
            self._process = None
