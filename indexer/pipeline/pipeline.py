"""The pipeline: read -> encode -> build -> send -> acknowledge. Every stage runs in its own threads, with a bounded queue before it.

A slow stage makes the stages before it wait, so memory use does not grow with the source. Otherwise all stages work at the same time.
Threads are enough, because tokenisation, the model, sockets and SQLite release Python's global lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from termweave.catalog.layout import engine_id
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.pipeline.bulk_sender import BulkItem, BulkSender, Outcome
from termweave.indexer.preparation.corpus_pass import BuildProgress, blocks
from termweave.support.batching import ahead

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.job import BuildTarget
    from termweave.indexer.options import BuildOptions
    from termweave.records import Document, Encoding

#: The names of the sending stage: usually, after Ctrl-C, and after an error. In the last two only open requests are waited for.
SENDING, STOPPING, FAILING = "Indexing", "Stopping", "Ending"


@dataclass
class StageCounts:
    """The numbers of documents that have passed each stage. Documents that an earlier run sent count in all stages.

    Each field is written by one thread only.

    Attributes:
        total: Documents of the source.
        read: Documents that were read.
        encoded: Documents that were encoded.
        sent: Documents that were given to the sender.
        acknowledged: Documents that the server has stored and the ledger records.
        refused: Documents that the server refused.
    """

    total: int
    read: int = 0
    encoded: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0

    def __str__(self) -> str:
        line = f"read {self.read:,} encoded {self.encoded:,} sent {self.sent:,} acknowledged {self.acknowledged:,}"
        return f"{line} refused {self.refused:,}" if self.refused else line

    def report(self, stage: str, progress: BuildProgress) -> None:
        """Report how many documents are acknowledged, with all counts."""
        progress(stage, self.acknowledged, self.total, str(self))


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

    def run(self, progress: BuildProgress) -> int:
        """Encode and send the documents that are not acknowledged yet; returns the number of documents that were sent.

        Args:
            progress: Called with (stage, done, total, counts of all stages) a few times a second, in the calling thread.

        Raises:
            RefusedDocuments: The server refuses nearly everything.
            TermweaveError: A stage failed; the ledger records the documents that were acknowledged until then.
        """
        target, ledger, options = self.target, self.target.ledger, self.options
        before = ledger.acknowledged
        counts = StageCounts(ledger.total, before, before, before, before)
        if before == counts.total:
            return 0
        stop = threading.Event()
        sender = BulkSender(self.engine, target.index, target.lease, stop, workers=options.workers, patience=options.patience)
        blocks_read = ahead([self._read(counts)], "read", stop)
        encoded = ahead([self._encode(blocks_read, counts)], "encode", stop)
        batches = ahead([self._build(encoded, sender)], "build", stop, depth=min(options.workers, 2))
        try:
            for outcome in sender.send(batches):
                self._record(outcome, counts)
                counts.sent = before + sender.taken
                counts.report(SENDING, progress)
                target.lease.check()
                outcome.raise_fatal()
                taken = counts.acknowledged - before
                dead_letters.check_early(ledger, options.allow_refused, refused=counts.refused, taken=taken)
        except BaseException as error:
            stop.set()
            stage = STOPPING if isinstance(error, KeyboardInterrupt) else FAILING
            counts.report(stage, progress)
            for outcome in sender.outcomes():  # of the open requests; a second Ctrl-C ends this wait
                self._record(outcome, counts)
                counts.report(stage, progress)
            raise
        self.engine.retries.waited += sender.throttle.waited
        return sender.taken

    def _read(self, counts: StageCounts) -> Iterator[list[Document]]:
        """Yield blocks of documents that still have to be sent, read from the source."""
        for block in blocks(self.source.documents(), counts.total - counts.read):
            pending = self.target.ledger.pending([(document.id, document.line) for document in block])
            documents = [document for document in block if (document.id, document.line) in pending]
            if documents:
                counts.read += len(documents)
                yield documents

    def _encode(self, read: Iterator[list[Document]], counts: StageCounts) -> Iterator[list[tuple[Document, Encoding]]]:
        for documents in read:
            if self.source.encodings is not None:
                encodings = [document.encoding for document in documents if document.encoding]
            else:
                texts = [document.content for document in documents]
                encodings = self.encoder.encode(texts, kind="document", statistics=self.target.statistics)
            counts.encoded += len(documents)
            yield list(zip(documents, encodings, strict=True))

    def _build(self, encoded: Iterator[list[tuple[Document, Encoding]]], sender: BulkSender) -> Iterator[list[BulkItem]]:
        """Build batches of request bodies; the sender changes the size of a batch during the run."""
        batch: list[BulkItem] = []
        filled = 0
        for pairs in encoded:
            for document, encoding in pairs:
                body = self.target.layout.document(document, encoding, self.target.statistics)
                action = orjson.dumps({"index": {"_id": engine_id(document.id)}}, option=orjson.OPT_APPEND_NEWLINE)
                lines = action + orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
                batch.append(BulkItem(document.id, lines, body["encoding_digest"]))
                filled += len(lines)
                if filled >= sender.throttle.size:
                    yield batch
                    batch, filled = [], 0
        if batch:
            yield batch

    def _record(self, outcome: Outcome, counts: StageCounts) -> None:
        """Enter in the ledger what the server acknowledged and what it refused."""
        if outcome.acknowledged:
            self.target.ledger.acknowledge(outcome.acknowledged)
            counts.acknowledged += len(outcome.acknowledged)
        if outcome.refused:
            self.target.ledger.refuse(outcome.refused)
            counts.refused += len(outcome.refused)
