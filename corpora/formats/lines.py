"""Files as lines: plain or packed, counted as they are read, never more than one line in memory."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tempfile
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING

from termweave.corpora.packing import SUFFIXES, called, copies, opened
from termweave.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress

#: The longest line that is read: a document beyond it is a file by itself, or one without line ends.
MAX_LINE = 64_000_000
#: Bytes of a file that recognition looks at.
HEAD = 1 << 16

_CHUNK = 1 << 18
BOM = b"\xef\xbb\xbf"


def head(path: Path) -> bytes:
    """The first unpacked bytes of a file, without byte order mark and blanks: empty for a blank file.

    Raises:
        UsageError: It cannot be opened.
        InputError: It cannot be read: packed, and damaged from the start.
    """
    with opened(path) as stream:
        start = b""
        while not start and (chunk := stream.read1(HEAD)):  # read1: what is there, even where the file is cut short soon after
            start = chunk.removeprefix(BOM).lstrip(b" \t\r\n")
        return start


def is_utf16(start: bytes) -> bool:
    """Whether a file that starts so is UTF-16 or UTF-32: by its mark, or by the NULs around its first ASCII characters."""
    if start[:2] in {b"\xff\xfe", b"\xfe\xff"} or start[:4] == b"\0\0\xfe\xff":
        return True
    characters = start[:4].replace(b"\0", b"")
    padded = {start[:4:2], start[1:4:2]} & {b"\0\0", b"\0"}
    return bool(padded) and characters.isascii() and characters.decode().isprintable() and characters != b""


def raw_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes | None]]:
    """All lines of a file as they stand, each with its 1-based number and its end.

    Yields:
        Number and bytes; None in place of the bytes for a line longer than `MAX_LINE`, which is never held in memory.

    Raises:
        InputError: The file is UTF-16, or cannot be read to its end.
    """
    number = 0
    with opened(path, progress, where=lambda: f"behind line {number:,}") as stream:
        if is_utf16(stream.peek(4)[:4]):
            hint = "Turn it into UTF-8: `iconv -f UTF-16 -t UTF-8`."
            raise InputError(f"{called(path)} is UTF-16 or UTF-32, and only UTF-8 is read.", hint)
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = stream.readline(_CHUNK)
                yield number, None
                continue
            yield number, line


def lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file that hold something, numbered as in `raw_lines`, without their ends.

    Lines that are empty or all blanks are passed over, and counted. A byte order mark is taken off any line: files that
    were concatenated have one in the middle.
    """
    for number, line in raw_lines(path, progress):
        stripped = line if line is None else line.removeprefix(BOM).strip(b" \t\r\n")
        if stripped is None or stripped:
            yield number, stripped


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """`folder/name`, or `folder/name.gz` or `.zst` where only that exists."""
    return next((path for suffix in ("", *SUFFIXES) if (path := folder / f"{name}{suffix}").is_file()), None)


def hidden(spec: str) -> bool:
    """Whether this user may not look into a folder, or not into one that the path leads through."""
    try:
        if stat.S_ISDIR(os.stat(spec).st_mode):  # noqa: PTH116 - a Path is normalised, and "." behind it would go
            os.stat(f"{spec}/.")  # noqa: PTH116
            os.scandir(spec).close()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def fingerprint(path: Path, kind: str) -> str:
    """32 hexadecimal digits over a file's bytes and the way they are read.

    Args:
        path: The file.
        kind: Name and version of the reading: the same bytes read otherwise are other documents.
    """
    status = path.stat()
    return _fingerprint(path, kind, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _fingerprint(path: Path, kind: str, size: int, changed_ns: int) -> str:
    """Hashes 1 GB a second; size and time are there so that a file that changed is read again."""
    del size, changed_ns
    digest = blake2b(kind.encode() + b"\n", digest_size=16)
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise InputError(f"{called(path)} cannot be read: {error.strerror or error}.", "Check the disk it lies on.") from error
    return digest.hexdigest()


def spooled(spec: str) -> Path | None:
    """A copy on disk of what can be read only once, because a source is read twice; the caller discards it.

    Returns:
        The copy of standard input for ``-``, of a pipe or device for its path; None for all else, which needs no copy.

    Raises:
        UsageError: Standard input is a terminal: nobody is going to type a corpus.
        InputError: There is no room for the copy.
    """
    if spec == "-":
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise UsageError("Standard input is a terminal or closed, not a corpus.", "Pipe documents into it, or name a path.")
        return _copy(sys.stdin.buffer, "Standard input")
    path = Path(spec)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return None
    with path.open("rb") as stream:
        return _copy(stream, spec)


def unpacked(path: Path) -> Path:
    """A copy of a packed file as it is unpacked, for a reader that jumps in it; the caller discards it.

    Raises:
        InputError: The file is damaged, or there is no room for the copy.
    """
    with opened(path) as stream:
        return _copy(stream, called(path))


def _copy(stream: IO[bytes], name: str) -> Path:
    handle, made = tempfile.mkstemp(prefix="termweave-")
    path = Path(made)
    try:
        with os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
    except BaseException as error:  # Ctrl-C, too: a pipe may never end
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            hint = "Set TMPDIR to a folder with room."
            raise InputError(f"{name} cannot be kept in {path.parent}: {error.strerror or error}.", hint) from error
        raise
    copies[path] = name
    return path


def discard(copy: Path) -> None:
    """Remove a copy that `spooled` or `unpacked` made."""
    copy.unlink(missing_ok=True)
    copies.pop(copy, None)
