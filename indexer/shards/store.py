"""The folder of shards: files on local disk or at any fsspec URL, each written under a temporary name and renamed when it is whole."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.errors import InputError, TermweaveError, UsageError
from termweave.support.extras import install
from termweave.support.messages import first_line, without_password

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The file that makes a folder a folder of shards.
MANIFEST = "termweave-shards.json"
#: The beginning of an fsspec URL: file systems may stand before each other.
_URL = re.compile(r"(?:[a-z0-9+.-]+::)*(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)
#: Files that a process has open beside those of shards: libraries, models, connections, ledgers.
_OTHER_FILES = 200


def open_at_once(shards: int) -> None:
    """Let this process have a file of each shard open: what is read in the order of the corpus comes from all of them in turn.

    Raises:
        UsageError: The system does not allow so many.
    """
    try:
        import resource  # noqa: PLC0415 - Windows has no such module, and no such limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = shards + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"{shards:,} shards need as many open files, and this system allows a process {soft:,}.",
            "Raise that limit ('ulimit -n'), or encode with fewer --shards.",
        ) from error


def is_url(spec: str) -> bool:
    """Whether a folder is named by an fsspec URL such as ``s3://bucket/folder`` or ``simplecache::s3://bucket/folder``.

    An http(s) address is that of a file or an index, and ``ubi:https://...`` is the name of another source.
    """
    found = _URL.match(spec)
    return found is not None and found["scheme"].lower() not in {"http", "https"}


def holds_shards(spec: str) -> bool:
    """Whether there is a folder of shards under this path or URL."""
    if not is_url(spec):
        return (Path(spec) / MANIFEST).is_file()
    return ShardStore(spec).exists(MANIFEST)


class ShardStore:
    """A folder of shards.

    Args:
        spec: Path, or fsspec URL.

    Raises:
        UsageError: A package is missing, or the URL has a scheme that no installed file system serves.
    """

    def __init__(self, spec: str) -> None:
        self.shown = without_password(spec)
        try:
            import fsspec  # noqa: PLC0415 - only shards need it
            import pyarrow.parquet  # noqa: F401, PLC0415 - checked before any work begins
        except ImportError as error:
            raise UsageError(
                f"Shards are Parquet files, and {(error.name or 'pyarrow').partition('.')[0]} is not installed.",
                f"Run `{install('shards')}`.",
            ) from error
        try:
            if _URL.match(spec):
                self._files, self._root = fsspec.core.url_to_fs(spec)
            else:  # fsspec would take "::" in a path for a chain of file systems
                self._files, self._root = fsspec.filesystem("file"), Path(spec).absolute().as_posix()
        except Exception as error:
            reason = first_line(error) if self.shown == spec or isinstance(error, ImportError) else type(error).__name__
            raise UsageError(  # an error may quote a part of the password
                f"{self.shown} cannot be opened: {reason}.",
                "Name a folder that this host can reach, and install the package of its file system.",
            ) from error
        self._root = self._root.rstrip("/")

    def exists(self, name: str) -> bool:
        """Whether a file is there, whole."""
        with self._readable(name):
            return bool(self._files.exists(self._path(name)))

    def names(self) -> set[str]:
        """Names of all files."""
        with self._readable("the folder"):
            self._files.invalidate_cache()  # another host may have written since
            if not self._files.isdir(self._root):
                return set()
            return {path.rpartition("/")[2] for path in self._files.ls(self._root, detail=False)}

    def size(self, name: str) -> int:
        """Bytes of a file."""
        with self._readable(name):
            return int(self._files.size(self._path(name)) or 0)

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            InputError: It is missing or cannot be read.
        """
        with self._readable(name):
            content: bytes = self._files.cat_file(self._path(name))
            return content

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Open a file for reading.

        Raises:
            InputError: It is missing or damaged.
        """
        with self._readable(name), self._files.open(self._path(name), "rb") as stream:
            yield stream

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole.

        Raises:
            TermweaveError: It cannot be written.
        """
        with self.writing(name) as stream:
            stream.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a file for writing under a temporary name; it gets its name when the body has ended without an error.

        Raises:
            TermweaveError: It cannot be written.
        """
        scratch = self._path(f".{name}.{secrets.token_hex(6)}")
        ours = True  # whether the body runs; its errors are its own, but for those of the system
        try:
            self._files.makedirs(self._root, exist_ok=True)
            with self._files.open(scratch, "wb") as stream:
                ours = False
                yield stream
                ours = True
            self._files.mv(scratch, self._path(name))
        except BaseException as error:
            with suppress(Exception):
                self._files.rm(scratch)
            if isinstance(error, OSError) or (ours and isinstance(error, Exception)):
                raise TermweaveError(
                    f"{name} cannot be written to {self.shown}: {getattr(error, 'strerror', '') or first_line(error)}.",
                    "Free some space or check the permissions of that folder, then run the command again: it resumes.",
                ) from error
            raise

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise InputError(
                f"{self.shown} has no {name}.", "Run 'termweave encode' again: it writes what is missing."
            ) from error
        except TermweaveError:
            raise
        except Exception as error:
            raise InputError(
                f"{name} in {self.shown} cannot be read: {first_line(error)}.",
                "If it is damaged, remove it and run 'termweave encode' again: it writes what is missing.",
            ) from error
