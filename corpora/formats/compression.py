"""Compressed files: gzip and Zstandard are decompressed while reading, other formats are named in an error. Also the limits on how much is read."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.errors import InputError, UsageError
from termweave.support.messages import sized

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from termweave.corpora.sources import Progress

#: Suffixes of compressed files, used only to find ``corpus.jsonl.gz`` in place of ``corpus.jsonl``.
SUFFIXES = (".gz", ".zst")

_CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
#: Magic numbers of skippable frames: a Zstandard file may begin with one; pzstd writes sizes there.
_ZSTD_ASIDE = {bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60)}
#: Part of libzstd's message for a frame that needs more memory than the default limit.
_LONG = "too much memory"
#: Beginnings of files that users try to read as a corpus -> what they are, and what to do.
_FOREIGN = {
    b"PK\x03\x04": ("a zip archive (or an office document)", "Unpack it, or save the document as .docx, .pptx, .xlsx or CSV."),
    b"\xfd7zXZ\0": ("compressed with xz", "Decompress it with `xz -dk`, or pipe `xz -dc` into `-`."),
    b"BZh": ("compressed with bzip2", "Decompress it with `bzip2 -dk`, or pipe `bzip2 -dc` into `-`."),
    b"\x04\x22\x4d\x18": ("compressed with lz4", "Decompress it with `lz4 -d`, or pipe `lz4 -dc` into `-`."),
    b"\xd0\xcf\x11\xe0": (
        "an office document, encrypted or older than 2007",
        "Save it as .docx, .pptx or .xlsx without a password.",
    ),
    b"SQLite format 3\0": ("an SQLite database", "Export the table: `sqlite3 -csv -header FILE 'select ...'`."),
}


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """Limits on the size of a file, compressed or not. The defaults are those of the command line, whose user chose the file.

    Attributes:
        unpacked: Most bytes of a compressed file after decompression: a few kilobytes can become terabytes.
        lines: Most lines of a file.
        line: Most bytes of a line, where `lines.MAX_LINE` does not allow fewer.
    """

    unpacked: int = 10**13
    lines: int = 10**10
    line: int = 10**10


_COMMAND_LINE = ReadingLimits()
_limits: ContextVar[ReadingLimits] = ContextVar("limits", default=_COMMAND_LINE)
#: Temporary copies of streams -> names of the streams in messages.
copies: dict[Path, str] = {}


def called(path: Path) -> str:
    """Return the name of a file for messages; for a temporary copy the name of its origin."""
    return copies.get(path, str(path))


def limits() -> ReadingLimits:
    """Return the limits in force: those of the enclosing `limited`, else those of the command line."""
    return _limits.get()


@contextmanager
def limited(to: ReadingLimits) -> Iterator[None]:
    """Apply other limits within a ``with`` block, for files that somebody sent to a server."""
    before = _limits.set(to)
    try:
        yield
    finally:
        _limits.reset(before)


class _Counted(io.FileIO):
    """A file that reports how many bytes were read from disk, so that compressed files have a progress bar, too."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        super().__init__(path, "rb")
        self._progress = progress
        self._position = 0

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        read = super().readinto(buffer) or 0
        self._position += read
        if self._progress and read:
            self._progress(self._position)
        return read


class _Pieces(io.RawIOBase):
    """A stream of decompressed bytes in the pieces that the decompressor gives: of a file that is cut short, no bytes before the cut are lost."""

    def __init__(self, unpacking: Any, name: str) -> None:
        super().__init__()
        self._unpacking, self._name = unpacking, name
        self._left = limits().unpacked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        piece = self._unpacking.read1(len(room))
        room[: len(piece)] = piece
        self._left -= len(piece)
        if self._left < 0:
            raise InputError(f"{self._name} has more than {sized(limits().unpacked)} when it is decompressed.", "Split the file.")
        return len(piece)


@contextmanager
def decompressed(
    path: Path, progress: Progress | None = None, where: Callable[[], str] = lambda: ""
) -> Iterator[io.BufferedReader[Any]]:
    """Open a file, and decompress it if its first bytes show a compressed format; the name of the file does not matter.

    Args:
        path: The file.
        progress: Called with the bytes read from disk so far.
        where: Function that returns the position for the message about a damaged file: "after line 7".

    Raises:
        UsageError: The file cannot be opened.
        InputError: The file cannot be read to its end: a compressed file is damaged or cut short.
    """
    try:
        raw = io.BufferedReader(_Counted(path, progress), _CHUNK)
    except OSError as error:
        raise UsageError(f"{called(path)} cannot be opened: {error.strerror}.", "Name a file that you may read.") from error
    with raw:
        zstd_error = zstd_module().ZstdError if (packing := _packing(raw.peek(4))) == _ZSTD else zlib.error
        try:
            if packing is None:
                yield raw
            else:
                unpacking = gzip.GzipFile(fileobj=raw) if packing == _GZIP else zstd_module().ZstdFile(raw)
                with unpacking, io.BufferedReader(_Pieces(unpacking, called(path)), _CHUNK) as stream:
                    yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error, zstd_error) as error:
            tool = "gzip" if packing == _GZIP else "zstd"
            if _LONG in str(error):
                message = f"{called(path)} is compressed with a window of more than 128 MB."
                raise InputError(message, "Decompress it with `zstd -d --long=31`.") from error
            place = ", ".join(filter(None, [where(), f"near byte {raw.tell():,} of {path.stat().st_size:,}"]))
            message = f"{called(path)} is compressed, and damaged or cut short {place}: {str(error).rstrip('.')}."
            raise InputError(message, f"Download or compress it again; `{tool} -t` checks it.") from error
        except OSError as error:
            raise InputError(f"{called(path)} cannot be read: {error.strerror or error}.", "Check the disk.") from error


def is_packed(path: Path) -> bool:
    """Whether a file is compressed in a format that `decompressed` reads."""
    with path.open("rb") as stream:
        return _packing(stream.read(4)) is not None


def foreign(start: bytes) -> tuple[str, str] | None:
    """Return name and advice for a file in a well-known format that no reader supports; None: the file has no such format."""
    if kind := next((kind for magic, kind in _FOREIGN.items() if start.startswith(magic)), None):
        return kind
    if b"\r" in start and b"\n" not in start and b"\0" not in start:  # Excel's "CSV (Macintosh)"
        return "a text whose lines end in carriage returns only", r"Replace them with line feeds: `tr '\r' '\n'`."
    return None


def _packing(start: bytes) -> bytes | None:
    """Return the magic number of the compression of a file with this beginning; None: the file is not compressed."""
    if start.startswith(_GZIP):
        return _GZIP
    return _ZSTD if start[:4] == _ZSTD or start[:4] in _ZSTD_ASIDE else None


def zstd_module() -> Any:
    """Import the module `compression.zstd` of Python 3.14, or its backport."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - needed for Zstandard files only
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd
