"""The pipeline: read -> encode -> build -> send -> acknowledge, every stage in threads of its own with a bounded queue before it.

A stage that is slow makes those before it wait, so memory stays flat however long the source is; none waits for another
while both have work. Threads are enough: tokenisation, the model, the socket and SQLite all work outside Python's lock.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import orjson

from termweave.indexer import refusals
from termweave.indexer.sending import Item, Sender
from termweave.indexer.survey import blocks
from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.expanding import Encode
    from termweave.indexer.ledger import Ledger
    from termweave.records import Document, Encoding
    from termweave.signals import DocumentLayout

T = TypeVar("T")
#: Blocks that may wait between two stages: one to take while the next is made.
_DEPTH = 1
#: Seconds between looks at whether to stop.
_TICK = 0.2


@dataclass
class Counts:
    """How far a build is; every field is written by one thread.

    Attributes:
        total: Documents of the source.
        read: Read and found to be sent still, or acknowledged by an earlier run.
        encoded: Likewise, through the models.
        sent: Likewise, handed to a connection or waiting for one.
        acknowledged: The engine has them and the ledger says so.
        refused: The engine will not take them.
        interrupted: Set when only what is under way is waited for: whether the user wished it, or an error did.
    """

    total: int
    read: int = 0
    encoded: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    interrupted: bool | None = None

    def __str__(self) -> str:
        line = f"read {self.read:,} encoded {self.encoded:,} sent {self.sent:,} acknowledged {self.acknowledged:,}"
        return f"{line} refused {self.refused:,}" if self.refused else line


@dataclass(frozen=True)
class Pipeline:
    """What the stages need to know.

    Attributes:
        engine: Where to.
        index: The concrete index.
        source: What to read.
        encode: What gives the encodings of documents.
        layout: How documents look.
        ledger: Which of them are acknowledged.
        workers: Connections.
        patience: Seconds to keep trying without any progress.
        allow_refused: Share of the documents that the engine may refuse.
    """

    engine: Engine
    index: str
    source: Source
    encode: Encode
    layout: DocumentLayout
    ledger: Ledger
    workers: int
    patience: float
    allow_refused: float

    def run(self, report: Callable[[Counts], None]) -> Counts:
        """Encode and send what is not acknowledged yet.

        Args:
            report: Told how far it is, a few times a second, by the calling thread; what it raises ends the run.

        Raises:
            RefusedDocuments: The engine refuses nearly everything.
            TermweaveError: Of whatever stage; what was acknowledged until then is in the ledger.
        """
        done = self.ledger.acknowledged
        counts = Counts(self.ledger.total, done, done, done, done)
        if done == counts.total:
            return counts
        stop = threading.Event()
        sender = Sender(
            self.engine,
            self.index,
            acknowledged=lambda pairs: self._acknowledge(pairs, counts),
            refused=lambda pairs: self._refuse(pairs, counts, done),
            workers=self.workers,
            patience=self.patience,
            waiting=lambda: report(counts),
        )
        try:
            waiting = ahead(self._read(counts), "read", stop)
            encoded = ahead(self._encode(waiting, counts), "encode", stop)
            for batch in ahead(self._build(encoded, lambda: sender.batch_bytes), "build", stop):
                counts.sent += len(batch)
                sender.submit(batch)
                report(counts)
            sender.close()
        except BaseException as error:
            stop.set()
            counts.interrupted = isinstance(error, KeyboardInterrupt)
            sender.abandon()  # a second Ctrl-C ends this wait
            raise
        return counts

    def _read(self, counts: Counts) -> Iterator[list[Document]]:
        """Blocks of documents that are to be sent still."""
        for block in blocks(self.source.documents(), counts.total - counts.read):
            waiting = self.ledger.pending([(document.id, document.line) for document in block])
            todo = [document for document in block if (document.id, document.line) in waiting]
            if todo:
                counts.read += len(todo)
                yield todo

    def _encode(self, waiting: Iterator[list[Document]], counts: Counts) -> Iterator[list[tuple[Document, Encoding]]]:
        for todo in waiting:
            encodings = self.encode(todo)
            counts.encoded += len(todo)
            yield list(zip(todo, encodings, strict=True))

    def _build(self, encoded: Iterator[list[tuple[Document, Encoding]]], size: Callable[[], int]) -> Iterator[list[Item]]:
        """Batches of bodies, as large as the sender wishes at that moment."""
        batch: list[Item] = []
        filled = 0
        for pairs in encoded:
            for document, encoding in pairs:
                item = self._item(document, encoding)
                batch.append(item)
                filled += len(item.lines)
                if filled >= size():
                    yield batch
                    batch, filled = [], 0
        if batch:
            yield batch

    def _item(self, document: Document, encoding: Encoding) -> Item:
        body = self.layout.document(document, encoding)
        action = orjson.dumps({"index": {"_id": engine_id(document.id)}}, option=orjson.OPT_APPEND_NEWLINE)
        lines = action + orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
        return Item(document.id, document.line, lines, body["encoding_digest"])

    def _acknowledge(self, pairs: list[tuple[str, int]], counts: Counts) -> None:
        self.ledger.acknowledge(pairs)
        counts.acknowledged += len(pairs)

    def _refuse(self, pairs: list[tuple[str, str]], counts: Counts, before: int) -> None:
        self.ledger.refuse(pairs)
        counts.refused += len(pairs)
        refusals.check_early(self.ledger, self.allow_refused, refused=counts.refused, taken=counts.acknowledged - before)


def ahead(items: Iterator[T], name: str, stop: threading.Event, depth: int = _DEPTH) -> Iterator[T]:
    """What an iterator gives, made by a thread of its own that runs at most `depth` items ahead.

    Args:
        items: The iterator; only the thread touches it.
        name: Of the thread.
        stop: Ends the thread, and this iterator, before their time.
        depth: Bound of the queue.

    Raises:
        BaseException: What the iterator raised, where its next item would have been.
    """
    made: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=depth)
    threading.Thread(target=_make, args=(items, made, stop), name=f"termweave-{name}", daemon=True).start()
    while not stop.is_set():
        try:
            item, end = made.get(timeout=_TICK)
        except queue.Empty:
            continue
        if end is None:
            yield cast("T", item)
        elif isinstance(end, StopIteration):
            return
        else:
            raise end


def _make(items: Iterator[T], made: queue.Queue[tuple[T | None, BaseException | None]], stop: threading.Event) -> None:
    """Put what an iterator gives into a queue, and behind it the exception with which it ends."""

    def put(item: T | None, end: BaseException | None) -> None:
        while not stop.is_set():
            try:
                made.put((item, end), timeout=_TICK)
            except queue.Full:
                continue
            return

    try:
        for item in items:
            put(item, None)
            if stop.is_set():
                return
        put(None, StopIteration())
    except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
        put(None, error)
