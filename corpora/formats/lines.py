"""Read files line by line, compressed or not, with at most one line in memory; copy streams to disk; hash files."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, TYPE_CHECKING

from termweave.corpora.formats.compression import SUFFIXES, called, copies, decompressed, limits
from termweave.errors import InputError, UsageError
from termweave.support import private_files

if TYPE_CHECKING:
    from termweave.corpora.sources import Progress

#: The longest line that is read, in bytes: a longer one is not a document but a file without line ends.
MAX_LINE = 64_000_000
#: Number of bytes at the beginning of a file by which its format is recognised.
HEAD = 1 << 16

_CHUNK = 1 << 18
BOM = b"\xef\xbb\xbf"


def head(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed, without byte order mark and leading blanks; empty for a blank file.

    Raises:
        UsageError: The file cannot be opened.
        InputError: The file is compressed and damaged from the start.
    """
    with decompressed(path) as stream:
        # read1 returns the first bytes even if the file is cut short soon after
        chunks = (chunk.removeprefix(BOM).lstrip(b" \t\r\n") for chunk in iter(lambda: stream.read1(HEAD), b""))
        return next(filter(None, chunks), b"")


def is_utf16(start: bytes) -> bool:
    """Whether a file with this beginning is UTF-16 or UTF-32, to judge by its byte order mark, or by NULs around its first ASCII characters."""
    if start[:2] in {b"\xff\xfe", b"\xfe\xff"} or start[:4] == b"\0\0\xfe\xff":
        return True
    characters = start[:4].replace(b"\0", b"")
    padded = {start[:4:2], start[1:4:2]} & {b"\0\0", b"\0"}
    return bool(padded) and characters.isascii() and characters.decode().isprintable() and characters != b""


def longest_line() -> int:
    """Return the most bytes that a line may have under the limits in force."""
    return min(MAX_LINE, limits().line)


def raw_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes | None]]:
    """Read all lines of a file unchanged, with their line ends.

    Yields:
        Number of the line, from 1, and its bytes; None instead of the bytes for a line that is too long, which is not kept in memory.

    Raises:
        InputError: The file is UTF-16, cannot be read to its end, or has more lines than `limits` allows.
    """
    number, most, longest = 0, limits().lines, longest_line()
    with decompressed(path, progress, where=lambda: f"after line {number:,}") as stream:
        if is_utf16(stream.peek(4)[:4]):
            raise InputError(f"{called(path)} is UTF-16 or UTF-32.", "Convert it to UTF-8: `iconv -f UTF-16 -t UTF-8`.")
        while line := stream.readline(longest + 1):
            number += 1
            if number > most:
                raise InputError(f"{called(path)} has more than {most:,} lines.", "Split it into smaller files.")
            too_long = len(line) > longest and not line.endswith(b"\n")
            while too_long and line and not line.endswith(b"\n"):
                line = stream.readline(_CHUNK)
            yield number, None if too_long else line


def lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes | None]]:
    """Read the lines of a file that are not blank, numbered as in `raw_lines`, without their line ends.

    A byte order mark is removed from any line, because files that were joined to one have byte order marks in the middle.
    """
    for number, line in raw_lines(path, progress):
        stripped = line if line is None else line.removeprefix(BOM).strip(b" \t\r\n")
        if stripped is None or stripped:
            yield number, stripped


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """Find the file `name`, `name.gz` or `name.zst` in a folder; None: the folder has none of them."""
    return next((path for suffix in ("", *SUFFIXES) if (path := folder / f"{name}{suffix}").is_file()), None)


def hidden(spec: str) -> bool:
    """Whether permissions keep this user from reading a folder or a folder above it."""
    try:
        if stat.S_ISDIR(os.stat(spec).st_mode):  # noqa: PTH116 - a Path would drop the "." at the end
            os.stat(f"{spec}/.")  # noqa: PTH116
            os.scandir(spec).close()
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return False


def fingerprint(path: Path, kind: str) -> str:
    """Hash of a file's bytes and of the way they are read: 32 hexadecimal digits.

    Args:
        path: The file.
        kind: Name and version of the reader: the same bytes read in another way are different documents.
    """
    status = path.stat()
    return _fingerprint(path, kind, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _fingerprint(path: Path, kind: str, size: int, changed_ns: int) -> str:
    """Hash a file (about 1 GB per second). Results are cached; size and time of change are arguments so that a changed file is hashed again."""
    del size, changed_ns
    try:
        with path.open("rb") as stream:
            return file_digest(stream, lambda: blake2b(kind.encode() + b"\n", digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"{called(path)} cannot be read: {error.strerror or error}.", "Check the disk of the file.") from error


def spooled(spec: str) -> Path | None:
    """Copy a stream to disk, because sources are read twice and a stream can be read only once. The caller removes the copy.

    Returns:
        The copy of standard input for ``-``, or of a pipe or device for its path; None for a file, which needs no copy.

    Raises:
        UsageError: Standard input is a terminal or closed.
        InputError: There is no room for the copy.
    """
    if spec == "-":
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise UsageError("Standard input is a terminal or closed.", "Pipe documents into the command, or name a path.")
        return _copy(sys.stdin.buffer, "Standard input")
    with suppress(OSError, ValueError):
        mode = Path(spec).stat().st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            with Path(spec).open("rb") as stream:
                return _copy(stream, spec)
    return None


def unpacked(path: Path) -> Path:
    """Decompress a file to a copy on disk, for a reader that jumps to places in the file. The caller removes the copy.

    Raises:
        InputError: The file is damaged, or there is no room for the copy.
    """
    with decompressed(path) as stream:
        return _copy(stream, called(path))


def _copy(stream: IO[bytes], name: str) -> Path:
    with new_copy(name) as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return Path(copy.name)


@contextmanager
def new_copy(name: str) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing, called `name` in messages. The file is removed at once if writing fails, else by `discard`.

    Raises:
        InputError: The disk has no room for the file.
    """
    handle, name_of_copy = tempfile.mkstemp(dir=private_files.scratch())
    os.close(handle)
    path = Path(name_of_copy)
    copies[path] = name
    try:
        with path.open("wb") as copy:  # closing it writes the last part
            yield copy
    except BaseException as error:  # Ctrl-C, too: a pipe may never end
        discard(path)
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            hint = "Set TMPDIR to a folder on a disk with enough room."
            raise InputError(f"{name} cannot be copied to {path.parent}: {error.strerror or error}.", hint) from error
        raise


def discard(copy: Path) -> None:
    """Remove a temporary file that `new_copy` made."""
    copy.unlink(missing_ok=True)
    copies.pop(copy, None)
