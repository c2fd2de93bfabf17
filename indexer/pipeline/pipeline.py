"""The pipeline: read -> encode -> build -> send -> acknowledge. Every stage runs in its own threads, with a bounded queue before it.

A slow stage makes the stages before it wait, so memory use does not grow with the source. Otherwise all stages work at the same time.
Threads are enough, because tokenisation, the model, sockets and SQLite release Python's global lock.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import orjson

from termweave.corpora.sources import encodings_of
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.pipeline.bulk_responses import BulkItem
from termweave.indexer.pipeline.bulk_sender import BulkSender
from termweave.indexer.preparation.corpus_pass import blocks
from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.build_target import BuildTarget
    from termweave.indexer.options import BuildOptions
    from termweave.records import Document, Encoding

T = TypeVar("T")
#: Number of blocks that may wait between two stages: one is ready while the next is made.
_DEPTH = 1
#: Seconds between checks whether to stop.
_TICK = 0.2


@dataclass
class StageCounts:
    """The number of documents that have passed each stage. Documents that an earlier run sent count in all stages.

    Each field is written by one thread only.

    Attributes:
        total: Documents of the source.
        read: Documents that were read.
        encoded: Documents that were encoded.
        sent: Documents that were given to the sender.
        acknowledged: Documents that the server has stored and the ledger records.
        refused: Documents that the server refused.
        interrupted: None while the run goes on. While it stops and only waits for open requests: True if the user stopped it, False if
            an error did.
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
    """One run of all stages, from a source to an index.

    Attributes:
        engine: The server.
        source: The documents, or their passages.
        encoder: The models; not used if the source brings its encodings.
        target: The generation to write into.
        options: The build options; `workers`, `patience` and `allow_refused` are used.
    """

    engine: Engine
    source: Source
    encoder: TextEncoder
    target: BuildTarget
    options: BuildOptions

    def run(self, report: Callable[[StageCounts], None]) -> StageCounts:
        """Encode and send the documents that are not acknowledged yet.

        Args:
            report: Called with the counts a few times a second, in the calling thread.

        Raises:
            RefusedDocuments: The server refuses nearly everything.
            TermweaveError: A stage failed; the ledger records the documents that were acknowledged until then.
        """
        done = self.target.ledger.acknowledged
        counts = StageCounts(self.target.ledger.total, done, done, done, done)
        if done == counts.total:
            return counts
        stop = threading.Event()
        sender = BulkSender(
            self.engine,
            self.target.index,
            self.target.lease,
            acknowledged=lambda pairs: self._acknowledge(pairs, counts),
            refused=lambda pairs: self._refuse(pairs, counts, done),
            workers=self.options.workers,
            patience=self.options.patience,
            waiting=lambda: report(counts),
        )
        try:
            read = ahead(self._read(counts), "read", stop)
            encoded = ahead(self._encode(read, counts), "encode", stop)
            for batch in ahead(self._build(encoded, lambda: sender.batch_bytes), "build", stop):
                counts.sent += len(batch)
                sender.submit(batch)
                report(counts)
            sender.close()
            self.engine.add_wait(sender.waited)
        except BaseException as error:
            stop.set()
            counts.interrupted = isinstance(error, KeyboardInterrupt)
            sender.abandon()  # waits for open requests; a second Ctrl-C ends this wait
            raise
        return counts

    def _read(self, counts: StageCounts) -> Iterator[list[Document]]:
        """Read blocks of documents that still have to be sent."""
        for block in blocks(self.source.documents(), counts.total - counts.read):
            pending = self.target.ledger.pending([(document.id, document.line) for document in block])
            documents = [document for document in block if (document.id, document.line) in pending]
            if documents:
                counts.read += len(documents)
                yield documents

    def _encode(self, read: Iterator[list[Document]], counts: StageCounts) -> Iterator[list[tuple[Document, Encoding]]]:
        brought = encodings_of(self.source) is not None
        for documents in read:
            if brought:
                encodings = [document.encoding for document in documents if document.encoding]
            else:
                texts = [document.content for document in documents]
                encodings = self.encoder.encode(texts, kind="document", statistics=self.target.statistics)
            counts.encoded += len(documents)
            yield list(zip(documents, encodings, strict=True))

    def _build(self, encoded: Iterator[list[tuple[Document, Encoding]]], size: Callable[[], int]) -> Iterator[list[BulkItem]]:
        """Build batches of request bodies, each of about `size` bytes; the sender changes that size during the run."""
        batch: list[BulkItem] = []
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

    def _item(self, document: Document, encoding: Encoding) -> BulkItem:
        body = self.target.layout.document(document, encoding)
        action = orjson.dumps({"index": {"_id": engine_id(document.id)}}, option=orjson.OPT_APPEND_NEWLINE)
        lines = action + orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
        return BulkItem(document.id, document.line, lines, body["encoding_digest"])

    def _acknowledge(self, pairs: list[tuple[str, int]], counts: StageCounts) -> None:
        self.target.ledger.acknowledge(pairs)
        counts.acknowledged += len(pairs)

    def _refuse(self, pairs: list[tuple[str, str]], counts: StageCounts, before: int) -> None:
        self.target.ledger.refuse(pairs)
        counts.refused += len(pairs)
        taken = counts.acknowledged - before
        dead_letters.check_early(self.target.ledger, self.options.allow_refused, refused=counts.refused, taken=taken)


def ahead(items: Iterator[T], name: str, stop: threading.Event, depth: int = _DEPTH) -> Iterator[T]:
    """Iterate in a background thread that prefetches at most `depth` items.

    Args:
        items: The iterator; only the background thread uses it.
        name: Name of the thread.
        stop: Event that ends the thread and this iterator early.
        depth: Largest number of prefetched items.

    Raises:
        BaseException: An exception of `items`, raised after the items before it.
    """
    prefetched: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=depth)
    threading.Thread(target=_prefetch, args=(items, prefetched, stop), name=f"termweave-{name}", daemon=True).start()
    while not stop.is_set():
        try:
            item, end = prefetched.get(timeout=_TICK)
        except queue.Empty:
            continue
        if end is None:
            yield cast("T", item)
        elif isinstance(end, StopIteration):
            return
        else:
            raise end


def _prefetch(items: Iterator[T], prefetched: queue.Queue[tuple[T | None, BaseException | None]], stop: threading.Event) -> None:
    """Put the items of an iterator into a queue, followed by the exception with which the iterator ends."""

    def put(item: T | None, end: BaseException | None) -> None:
        while not stop.is_set():
            try:
                prefetched.put((item, end), timeout=_TICK)
            except queue.Full:
                continue
            return

    try:
        for item in items:
            put(item, None)
            if stop.is_set():
                return
        put(None, StopIteration())
    except BaseException as error:  # noqa: BLE001 - the consuming thread raises it
        put(None, error)
