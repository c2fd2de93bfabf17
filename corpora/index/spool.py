"""The snapshot of an index on this host's disk: documents are read from the server once, and from here afterwards.

A build reads its source twice, and a build that was stopped reads it again. The file makes all these passes equal, with one pass over the
server, whatever is written to the index meanwhile. Each block is one page, compressed; the last one may be cut short by a crash.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
import zlib
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from termweave.corpora.index.pages import Page
from termweave.errors import InputError, TermweaveError
from termweave.support import atomic_files, file_locks, paths, private_files

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes before each block: its length.
_LENGTH = 4


class Spool:
    """A folder with the pages that were read, and with what is needed to read the others.

    Args:
        folder: The folder of a build that can be resumed; None: a temporary folder, which `discard` removes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.lasting = folder is not None
        try:
            self._folder = folder or Path(tempfile.mkdtemp(dir=private_files.scratch()))
        except OSError as error:
            raise _no_room(folder, error) from error
        self._file = self._folder / "pages"
        self._end = 0
        self._lock, self._held = ExitStack(), False
        weakref.finalize(self, self._lock.close)

    def hold(self) -> None:
        """Keep the snapshot for this process, until `discard` or its end; nobody else knows a temporary folder.

        Raises:
            TermweaveError: Another process holds it.
            InputError: The lock cannot be written.
        """
        if self._held or not self.lasting:
            return
        try:
            private_files.make_folder(self._folder.parent)
            self._lock.enter_context(file_locks.one_at_a_time(self._folder.with_suffix(".lock"), partial(_refuse, self._folder)))
        except OSError as error:
            raise _no_room(self._folder, error) from error
        self._held = True

    def get(self) -> dict[str, Any] | None:
        """The state that `put` stored; None if there is none."""
        try:
            stored: dict[str, Any] = orjson.loads((self._folder / "state.json").read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return stored

    def put(self, state: dict[str, Any]) -> None:
        """Store what is needed to go on reading; called before the first page."""
        path = self._folder / "state.json"
        try:
            private_files.make_folder(self._folder)
            private_files.make_file(self._file)
            atomic_files.write(path, orjson.dumps(state), private=True)
        except OSError as error:
            raise _no_room(path, error) from error

    def append(self, page: Page) -> None:
        """Add a page behind the blocks that `pages` or `append` reached last."""
        block = zlib.compress(orjson.dumps([page.slice, page.next, page.hits]), 1)
        try:
            with self._file.open("r+b") as file:
                file.seek(self._end)
                file.truncate()  # a block that a crash cut short
                file.write(len(block).to_bytes(_LENGTH, "big") + block)
        except OSError as error:
            raise _no_room(self._file, error) from error
        self._end += _LENGTH + len(block)

    def pages(self) -> Iterator[Page]:
        """Read all whole pages from the first one."""
        position, size = 0, os.path.getsize(self._file)  # noqa: PTH202 - one call
        with self._file.open("rb") as file:
            while (head := file.read(_LENGTH)) and position + _LENGTH + (length := int.from_bytes(head, "big")) <= size:
                position += _LENGTH + length
                self._end = max(self._end, position)
                yield Page(*orjson.loads(zlib.decompress(file.read(length))))

    def discard(self) -> None:
        """Delete the snapshot, unless another process holds it."""
        with suppress(TermweaveError):
            self.hold()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.close()
            self._held = False


def snapshots() -> Path:
    """The folder with the snapshots of builds that can be resumed."""
    return paths.state() / "snapshots"


def discard_all(build: str) -> None:
    """Delete the snapshots of a name that no process holds."""
    for file in snapshots().glob("*/state.json"):
        spool = Spool(file.parent)
        if (spool.get() or {}).get("build") == build:
            spool.discard()


def _refuse(folder: Path) -> NoReturn:
    raise TermweaveError(
        f"Another command reads the index into the same snapshot ({folder}).", "Wait until it has ended, or stop it."
    )


def _no_room(place: Path | None, error: OSError) -> InputError:
    return InputError(
        f"The snapshot of the index cannot be written to {place or tempfile.gettempdir()}: {error.strerror or error}.",
        "Make room, or set TMPDIR (for a build XDG_STATE_HOME) to another disk.",
    )
