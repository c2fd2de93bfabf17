"""Pages of documents: read from the slices of a point in time by several threads, and kept on this host's disk.

A build reads its source twice, and a build that was stopped reads it again. The snapshot on disk makes all these passes equal, with one pass
over the server, whatever is written to the index meanwhile. Each block of the snapshot's file is one page, compressed; a crash may cut
the last block short.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from termweave.errors import InputError, TermweaveError
from termweave.support import atomic_files, file_locks, paths, private_files
from termweave.support.batching import ahead

if TYPE_CHECKING:
    from termweave.corpora.index.point_in_time import PointInTime, ShardView

#: Threads that read. More would hardly be faster than the build, and each is load on the server that applications search.
READERS = 3
#: Slices for each thread: a slice with few documents ends early, and its thread takes the next one.
_PER_READER = 4
#: Fewest sequence numbers in a slice.
_SMALLEST = 2000
#: Documents of the first page, and the most of a page; later pages have about as many documents as fill `_BYTES`.
_FIRST, _MOST, _BYTES = 100, 1000, 2_000_000
#: Pages that wait for the thread that stores them.
_WAITING = 2
#: Bytes before each block: its length.
_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of the sequence numbers of one shard.

    Attributes:
        shard: Position of the shard in the point in time.
        low: The first sequence number.
        high: The last sequence number.
    """

    shard: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some documents of a slice.

    Attributes:
        slice: Position of the slice in the list of slices; -1: the documents belong to none, because they were changed after the point in time was lost.
        next: The sequence number at which the next page of the slice begins.
        hits: ``_id`` and ``_source`` of each document.
    """

    slice: int
    next: int
    hits: list[dict[str, Any]] = field(default_factory=list)


class Pace:
    """A limit of documents per second, which all threads share.

    Args:
        rate: Documents per second; None: no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._lock = threading.Lock()
        self._free = 0.0

    def turn(self, size: int, stop: threading.Event | None = None) -> int:
        """Wait until the next page may be read, or until `stop` is set.

        Returns:
            The number of documents of the page: `size`, but with a limit at most the documents of one second.
        """
        if self.rate is None:
            return size
        size = max(1, min(size, int(self.rate)))
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free)
            self._free = start + size / self.rate
        (stop or threading.Event()).wait(start - now)
        return size


def slices_of(views: Sequence[ShardView]) -> list[Slice]:
    """Divide shards into ranges of sequence numbers: some for each thread, but none that is tiny."""
    total = sum(view.last - view.first + 1 for view in views if view.documents)
    width = max(_SMALLEST, -(-total // (READERS * _PER_READER)))
    return [
        Slice(position, low, min(view.last, low + width - 1))
        for position, view in enumerate(views)
        if view.documents
        for low in range(view.first, view.last + 1, width)
    ]


class PageReader:
    """Reads what is left of all slices in threads of its own, and yields pages; can be iterated once.

    With several threads the order of the documents differs from one reading to the next.

    Args:
        point: The point in time.
        slices: The slices of the point in time.
        starts: Position of a slice -> sequence number at which to go on; slices that are not in `starts` begin at their first number.
        excludes: Fields that are not read.
        pace: The limit of documents per second.
        readers: Number of threads.
    """

    def __init__(
        self,
        point: PointInTime,
        slices: Sequence[Slice],
        starts: Mapping[int, int],
        excludes: Sequence[str],
        pace: Pace,
        readers: int = READERS,
    ) -> None:
        self._point, self._slices, self._pace, self._readers = point, slices, pace, readers
        self._stop = threading.Event()
        self._body = _body(excludes)
        self._waiting: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        for number, each in enumerate(slices):
            if (start := starts.get(number, each.low)) <= each.high:
                self._waiting.put((number, start))
        self._size = _FIRST

    def __iter__(self) -> Iterator[Page]:
        try:
            yield from ahead([self._slice_by_slice() for _ in range(self._readers)], "source", self._stop, depth=_WAITING)
        finally:
            self._stop.set()

    def _slice_by_slice(self) -> Iterator[Page]:
        """Yield the pages of one slice after the other until no slice is left: the work of one thread."""
        while not self._stop.is_set():
            try:
                number, start = self._waiting.get_nowait()
            except queue.Empty:
                return
            part = self._slices[number]
            view = self._point.views[part.shard]
            pages = self._point.pages(view, start, part.high, self._body, lambda: self._pace.turn(self._size, self._stop))
            for hits, following in pages:
                page = Page(number, following, _contents(hits))
                if hits:  # the next page is as large as the documents of this one allow
                    mean = len(orjson.dumps(page.hits)) / len(hits)
                    self._size = max(1, min(_MOST, int(_BYTES / mean), 4 * self._size))
                yield page
                if self._stop.is_set():
                    return


def changed_since(point: PointInTime, pace: Pace, excludes: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of the documents written after the first point in time of their shard, for shards whose point in time was lost and opened again."""
    for view in point.views:
        if view.renewed:
            for hits, _ in point.pages(view, view.last + 1, None, _body(excludes), lambda: pace.turn(_FIRST)):
                if hits:
                    yield _contents(hits)


def _contents(hits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"_id": hit["_id"], "_source": hit.get("_source")} for hit in hits]


def _body(excludes: Sequence[str]) -> dict[str, Any]:
    """Make the request for documents without the fields in `excludes`."""
    return {"_source": {"excludes": list(excludes)} if excludes else True}


class Spool:
    """A folder with the snapshot of an index: the pages that were read, and the state that is needed to read the others.

    Args:
        folder: The folder of a build that can be resumed; None: a temporary folder, which `discard` removes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.lasting = folder is not None
        with _writing(folder):
            self._folder = folder or Path(tempfile.mkdtemp(dir=private_files.scratch()))
        self._file = self._folder / "pages"
        self._end = 0
        self._lock, self._locked = ExitStack(), False
        weakref.finalize(self, self._lock.close)

    def hold(self) -> None:
        """Lock the snapshot for this process, until `discard` or the end of the process. A temporary folder needs no lock: nobody else knows it.

        Raises:
            TermweaveError: Another process holds the snapshot.
            InputError: The lock cannot be written.
        """
        if self._locked or not self.lasting:
            return
        with _writing(self._folder):
            private_files.make_folder(self._folder.parent)
            self._lock.enter_context(file_locks.one_at_a_time(self._folder.with_suffix(".lock"), partial(_refuse, self._folder)))
        self._locked = True

    def get(self) -> dict[str, Any] | None:
        """Return the state that `put` stored; None: no state is stored."""
        with suppress(OSError, orjson.JSONDecodeError):
            return dict(orjson.loads((self._folder / "state.json").read_bytes()))
        return None

    def put(self, state: dict[str, Any]) -> None:
        """Store the state that is needed to go on reading; first called before the first page."""
        path = self._folder / "state.json"
        with _writing(path):
            private_files.make_folder(self._folder)
            private_files.make_file(self._file)
            atomic_files.write(path, orjson.dumps(state), private=True)

    def append(self, page: Page) -> None:
        """Write a page behind the last block that `pages` read or `append` wrote."""
        block = zlib.compress(orjson.dumps([page.slice, page.next, page.hits]), 1)
        with _writing(self._file), self._file.open("r+b") as file:
            file.seek(self._end)
            file.truncate()  # a block that a crash cut short
            file.write(len(block).to_bytes(_LENGTH, "big") + block)
        self._end += _LENGTH + len(block)

    def pages(self) -> Iterator[Page]:
        """Yield the stored pages from the first one on, without a last one that is cut short."""
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
            self._locked = False


def snapshots() -> Path:
    """The folder with the snapshots of builds that can be resumed."""
    return paths.state() / "snapshots"


def discard_all(build: str) -> None:
    """Delete the snapshots for the index name `build`, except those that another process holds."""
    for file in snapshots().glob("*/state.json"):
        spool = Spool(file.parent)
        if (spool.get() or {}).get("build") == build:
            spool.discard()


def _refuse(folder: Path) -> NoReturn:
    raise TermweaveError(f"Another command reads the index into the same snapshot ({folder}).", "Wait for its end, or stop it.")


@contextmanager
def _writing(place: Path | None) -> Iterator[None]:
    """Turn an OSError in a ``with`` block into an error that says why a place cannot be written to; None: the place is the temporary folder."""
    try:
        yield
    except OSError as error:
        message = f"The snapshot of the index cannot be written to {place or tempfile.gettempdir()}: {error.strerror or error}."
        raise InputError(message, "Make room, or set TMPDIR (for a build XDG_STATE_HOME) to another disk.") from error
