"""Packed files: gzip and Zstandard are unpacked on the way, whatever the file is called; other ways are named."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from termweave.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from _typeshed import WriteableBuffer

    from termweave.corpora.sources import Progress

#: What packed files are called; only used to find ``corpus.jsonl.gz`` where ``corpus.jsonl`` is meant.
SUFFIXES = (".gz", ".zst")

_CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
#: A Zstandard file may begin with a frame to be passed over: pzstd writes its sizes there.
_ZSTD_ASIDE = {bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60)}
#: What libzstd says of a frame that asks for more memory than it gives by default.
_LONG = "too much memory"
#: What files begin with that are often taken for a corpus: what they are, and what to do.
_FOREIGN = {
    b"PK\x03\x04": ("a zip archive (or a document of an office program)", "Unpack it, or save the document as CSV."),
    b"\xfd7zXZ\0": ("packed with xz", "Unpack it with `xz -dk`, or pipe `xz -dc` into `-`."),
    b"BZh": ("packed with bzip2", "Unpack it with `bzip2 -dk`, or pipe `bzip2 -dc` into `-`."),
    b"\x04\x22\x4d\x18": ("packed with lz4", "Unpack it with `lz4 -d`, or pipe `lz4 -dc` into `-`."),
    b"%PDF": ("a PDF", "Turn it into text, `pdftotext`, and name the folder."),
    b"SQLite format 3\0": ("an SQLite database", "Export the table: `sqlite3 -csv -header FILE 'select ...'`."),
}
#: Copies on disk of what can be read only once -> what messages call that.
copies: dict[Path, str] = {}


def called(path: Path) -> str:
    """A file as messages name it."""
    return copies.get(path, str(path))


class _Counted(io.FileIO):
    """A file that says how far it was read: in bytes as they lie on the disk, so that packed files have a bar, too."""

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
    """Unpacked bytes as they come: what unpacks would fill a buffer, and lose what is in it where the file is cut short."""

    def __init__(self, unpacking: Any) -> None:
        super().__init__()
        self._unpacking = unpacking

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        room = memoryview(buffer)
        piece = self._unpacking.read1(len(room))
        room[: len(piece)] = piece
        return len(piece)


@contextmanager
def opened(
    path: Path, progress: Progress | None = None, where: Callable[[], str] = lambda: ""
) -> Iterator[io.BufferedReader[Any]]:
    """A file's unpacked bytes; whether and how it is packed is read from its first bytes, never from its name.

    Args:
        path: The file.
        progress: Told the bytes read so far, as they lie on the disk.
        where: How far the caller is, for the message on a damaged file: "behind line 7".

    Raises:
        UsageError: The file cannot be opened.
        InputError: The file cannot be read to its end: a packed one is damaged or cut short.
    """
    try:
        raw = io.BufferedReader(_Counted(path, progress), _CHUNK)
    except OSError as error:
        hint = "Name a file that exists and that you may read."
        raise UsageError(f"{called(path)} cannot be opened: {error.strerror}.", hint) from error
    with raw:
        zstd_error = _zstd().ZstdError if (packing := _packing(raw.peek(4))) == _ZSTD else zlib.error
        try:
            if packing is None:
                yield raw
            else:
                unpacking = gzip.GzipFile(fileobj=raw) if packing == _GZIP else _zstd().ZstdFile(raw)
                with unpacking, io.BufferedReader(_Pieces(unpacking), _CHUNK) as stream:
                    yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error, zstd_error) as error:
            tool = "gzip" if packing == _GZIP else "zstd"
            if _LONG in str(error):
                hint = "Pack it again without --long (`zstd -d --long=31` unpacks it)."
                raise InputError(f"{called(path)} is packed with a window of more than 128 MB.", hint) from error
            place = f"{where()}, " if where() else ""
            place += f"near byte {raw.tell():,} of {path.stat().st_size:,}"
            hint = f"Fetch or pack it again; `{tool} -t` checks it."
            reason = str(error).rstrip(".")
            raise InputError(f"{called(path)} is packed, and damaged or cut short {place}: {reason}.", hint) from error
        except OSError as error:
            raise InputError(
                f"{called(path)} cannot be read: {error.strerror or error}.", "Check the disk it lies on."
            ) from error


def is_packed(path: Path) -> bool:
    """Whether a file is packed in a way that `opened` unpacks."""
    with path.open("rb") as stream:
        return _packing(stream.read(4)) is not None


def foreign(start: bytes) -> tuple[str, str] | None:
    """What a file that begins so is, and what to do, where it is something well known that no reader reads."""
    if known := next((said for mark, said in _FOREIGN.items() if start.startswith(mark)), None):
        return known
    if b"\r" in start and b"\n" not in start and b"\0" not in start:  # Excel's "CSV (Macintosh)"
        return "a text whose lines end in carriage returns alone", r"Make line feeds of them: `tr '\r' '\n'`."
    return None


def _packing(start: bytes) -> bytes | None:
    if start.startswith(_GZIP):
        return _GZIP
    return _ZSTD if start[:4] == _ZSTD or start[:4] in _ZSTD_ASIDE else None


def _zstd() -> Any:
    """The standard library's module (3.14), or the package that is the same for older Pythons."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - a file that is not packed so does not need it
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd
