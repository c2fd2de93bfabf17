"""PDF and office files as text (extra `office`), read in a process of their own with a time limit per file: see `office_text`."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from termweave.corpora.formats.fields import BadLine
from termweave.support.python_processes import start_python

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.support.python_processes import PythonProcess

#: Suffix -> the module that reads such files.
MODULES = {".pdf": "pypdfium2", ".docx": "docx", ".pptx": "pptx", ".xlsx": "openpyxl"}
#: Seconds after which a file is given up.
SECONDS = 60.0
_CHUNK = 1 << 16


def readable() -> bool:
    """Whether the packages of the extra are installed."""
    return all(find_spec(module) is not None for module in MODULES.values())


class Extractor:
    """Reads files in a process that is started with the first one and again after a file that ended it."""

    def __init__(self) -> None:
        self._process: PythonProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def read(self, path: Path, kind: str) -> tuple[str, str]:
        """Title and text of a file.

        Args:
            path: The file.
            kind: Its suffix, a key of `MODULES`.

        Raises:
            BadLine: It is encrypted, damaged or too large, or takes too long.
        """
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"path": str(path), "kind": kind}).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, time.monotonic() + SECONDS)
        except BrokenPipeError:
            line = b""
        except BaseException:  # Ctrl-C: the answer would be read as that of the next file
            self._stop()
            raise
        if line is None:
            self._stop()
            raise BadLine(f"reading it takes more than {SECONDS:.0f} s")
        if not line.endswith(b"\n"):
            self._stop()
            raise BadLine("it is damaged: it ended the program that reads it")
        answer = json.loads(line)
        if "bad" in answer:
            raise BadLine(answer["bad"])
        return answer["title"], answer["text"]

    def _started(self) -> PythonProcess:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            program = "termweave.corpora.formats.office_text"
            self._process = start_python("-m", program, stderr=subprocess.DEVNULL, start_new_session=True)
        return self._process

    @staticmethod
    def _line(process: PythonProcess, until: float) -> bytes | None:
        """The next line of the process; shorter if it ended, None if the time is over."""
        assert process.stdout is not None
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not parts or not parts[-1].endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    break
                parts.append(chunk)
        return b"".join(parts)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was still to be written
                    stream.close()
        self._process.wait()
        self._process = None
