"""The folder of shards: files on local disk or at any fsspec URL, each written under a temporary name and renamed when it is whole."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.errors import InputError, TermweaveError, UsageError
from termweave.support import file_locks, private_files
from termweave.support.extras import install
from termweave.support.messages import first_line, without_password

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: The file that makes a folder a folder of shards.
MANIFEST = "termweave-shards.json"
#: The file by which a command keeps others from writing to a folder, and the temporary names of files.
_LOCK = ".lock"
_SCRATCH = re.compile(r"\..+\.[0-9a-f]{12}")
#: The beginning of an fsspec URL: file systems may stand before each other.
_URL = re.compile(r"(?:[a-z0-9+.-]+::)*(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def is_url(spec: str) -> bool:
    """Whether a folder is named by an fsspec URL such as ``s3://bucket/folder`` or ``simplecache::s3://bucket/folder``.

    An http(s) address is that of a file or an index, and ``ubi:https://...`` is the name of another source.
    """
    url = _URL.match(spec)
    return url is not None and url["scheme"].lower() not in {"http", "https"}


def holds_shards(spec: str) -> bool:
    """Whether there is a folder of shards under this path or URL."""
    if not is_url(spec):
        return (Path(spec) / MANIFEST).is_file()
    return MANIFEST in ShardStore(spec).names()


class ShardStore:
    """A folder of shards.

    Args:
        spec: Path, or fsspec URL.

    Attributes:
        shown: The folder as messages name it, without a password.
        everywhere: The URL, or the absolute path: a process that works in another folder opens the same store by it.

    Raises:
        UsageError: A package is missing, or the URL has a scheme that no installed file system serves.
    """

    def __init__(self, spec: str) -> None:
        self.shown = without_password(spec)
        try:
            import fsspec  # noqa: PLC0415 - only shards need it
            import pyarrow.parquet  # noqa: F401, PLC0415 - checked before any work begins
        except ImportError as error:
            message = f"Shards are Parquet files, and {(error.name or 'pyarrow').partition('.')[0]} is not installed."
            raise UsageError(message, f"Run `{install('shards')}`.") from error
        try:
            if _URL.match(spec):
                self._files, self._root = fsspec.core.url_to_fs(spec)
                self._local, self.everywhere = None, spec
            else:  # fsspec would take "::" in a path for a chain of file systems
                self._local = Path(spec).absolute()
                self._files, self._root = fsspec.filesystem("file"), self._local.as_posix()
                self.everywhere = str(self._local)
        except Exception as error:
            reason = first_line(error) if self.shown == spec or isinstance(error, ImportError) else type(error).__name__
            message = f"{self.shown} cannot be opened: {reason}."
            hint = "Name a folder that this host can reach, and install the package of its file system."
            raise UsageError(message, hint) from error  # an error may quote a part of the password
        self._root = self._root.rstrip("/")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a local folder while a command writes to it, and remove half-written files: those that a killed command left, and at the end those of this one.

        Raises:
            UsageError: Another command writes to the folder.
        """
        with ExitStack() as locks:
            if self._local:
                with self._written("the folder"):
                    self._local.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    locks.enter_context(file_locks.noted(self._local / _LOCK, f"process {os.getpid()}"))
                except file_locks.Held as other:
                    hint = "Wait until it has ended."
                    raise UsageError(f"Another command encodes to {self.shown} ({other.note}).", hint) from None
            locks.callback(self._remove_scratch)
            self._remove_scratch()
            yield

    def names(self) -> set[str]:
        """Return the names of all files in the folder."""
        with self._readable("the folder"):
            self._files.invalidate_cache()  # another host may have written since
            if not self._files.isdir(self._root):
                return set()
            return {path.rpartition("/")[2] for path in self._files.ls(self._root, detail=False)}

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self._readable(name):
            return int(self._files.size(self._path(name)) or 0)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is not there, or cannot be removed, does no harm."""
        for name in names:
            with suppress(Exception):
                self._files.rm_file(self._path(name))

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            InputError: The file is missing or cannot be read.
        """
        with self.reading(name) as stream:
            return bytes(stream.read())

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Open a file for reading.

        Raises:
            InputError: The file is missing or damaged.
        """
        with self._readable(name), self._files.open(self._path(name), "rb") as stream:
            yield stream

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole.

        Raises:
            TermweaveError: The file cannot be written.
        """
        with self.writing(name) as stream:
            stream.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Open a file for writing under a temporary name; the file gets its own name when the body has ended without an error.

        Raises:
            TermweaveError: The file cannot be written.
        """
        scratch = f".{name}.{secrets.token_hex(6)}"
        with ExitStack() as failed:
            failed.callback(self.remove, [scratch])
            with self._written(name):
                self._files.makedirs(self._root, exist_ok=True)
                path, local = self._path(scratch), self._local
                stream = private_files.open_private(local / scratch, "wb") if local else self._files.open(path, "wb")
            with self._written(name, OSError), stream:  # other errors are those of the body
                yield stream
            with self._written(name):
                self._files.mv(path, self._path(name))
            failed.pop_all()

    def _remove_scratch(self) -> None:
        self.remove(name for name in self.names() if _SCRATCH.fullmatch(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _written(self, name: str, errors: type[Exception] = Exception) -> Iterator[None]:
        try:
            yield
        except errors as error:
            message = f"{name} cannot be written to {self.shown}: {getattr(error, 'strerror', '') or first_line(error)}."
            hint = "Free some space or check the permissions of that folder, then run the command again: it resumes."
            raise TermweaveError(message, hint) from error

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            hint = "Run 'termweave encode' again: it writes what is missing."
            raise InputError(f"{self.shown} has no {name}.", hint) from error
        except TermweaveError:
            raise
        except Exception as error:
            hint = "If it is damaged, remove it and run 'termweave encode' again: it writes what is missing."
            raise InputError(f"{name} in {self.shown} cannot be read: {first_line(error)}.", hint) from error
