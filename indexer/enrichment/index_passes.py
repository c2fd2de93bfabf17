"""Passes over an index that is enriched: each reads documents from a point in time and sends the writes that they need.

The application changes the index at the same time: a write counts only if the document is still as it was read.

A watch makes further passes over documents that the application has written since; the sequence numbers of the shards tell which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from termweave.corpora.formats.fields import BadLine
from termweave.corpora.index import entries
from termweave.corpora.index.point_in_time import PointInTime, ShardView, open_views, sequence_numbers, uuid_of
from termweave.corpora.sources import Skipped
from termweave.dialect import dialect_of
from termweave.engine.client.connection import Engine, quote
from termweave.engine.client.retries import TURNED_AWAY
from termweave.engine.client.server_errors import EngineResponseError, block_hint, known_status
from termweave.errors import EngineError, InputError, RefusedDocuments, VerificationFailed
from termweave.indexer.enrichment import enriched_mapping
from termweave.indexer.pipeline.bulk_sender import PARAMETERS, reason_of
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora.index.source import IndexSource
    from termweave.encoders import TextEncoder
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.records import Document
    from termweave.statistics import CorpusStatistics

    #: A document as the server gives it; and with it the last line of an action of `_bulk`.
    Hit: TypeAlias = dict[str, Any]
    Write: TypeAlias = tuple[Hit, dict[str, Any]]

#: Statuses of a write that this pass or a later one makes again.
_LATER = {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND} | TURNED_AWAY
#: Documents in one request.
_PAGE = 200
#: Passes over the whole index, at most.
_PASSES = 6
#: Looks at writes that cannot be read until they are taken for deletions, which leave nothing to read. Each look may ask another node.
_LOOKS = 10
_MADE_AGAIN = "Run the command again for the new index."


@dataclass
class PassCounts:
    """The counts of a pass, or of all passes.

    Attributes:
        documents: Documents that can be read.
        unchanged: Documents whose fields agree with their content.
        stale: Documents that needed a write, because their fields were missing, outdated or to be removed.
        written: Documents that were written.
        conflicts: Writes that were given up because the application had changed the document.
        last: Shard (`ShardView.key`) -> the highest sequence number of the documents that were read; -1: there were none.
    """

    documents: int = 0
    unchanged: int = 0
    stale: int = 0
    written: int = 0
    conflicts: int = 0
    last: Mapping[str, int] = field(default_factory=dict)


@dataclass
class IndexPasses:
    """Passes over one index.

    Attributes:
        engine: The server.
        source: Reads the documents.
        index: The concrete index.
        writes_of: Function that makes the writes which a page of documents needs, and counts them.
        digest: Name of a field that is read from each document as the server indexed it; "": no such field is read.
        total: How many writes all passes made and gave up, and how many documents the last pass over the whole index read.
    """

    engine: Engine
    source: IndexSource
    index: str
    writes_of: Callable[[Sequence[Hit], PassCounts], Iterator[Any]]
    digest: str = ""
    total: PassCounts = field(default_factory=PassCounts)

    def repeat(self, progress: BuildProgress, *, once: bool = False) -> PassCounts:
        """Make passes until one finds nothing to write, because the application may change documents meanwhile; returns the counts of the first pass.

        Args:
            progress: Called with (stage, done, total, detail).
            once: Make one pass, whatever it finds.

        Raises:
            VerificationFailed: The application changed documents as fast as they were written.
        """
        first = None
        for _ in range(_PASSES):
            counts = self.run(progress)
            first = first or counts
            if once or not counts.stale:
                return first
        left = f"after {_PASSES} passes {counted(counts.stale, 'document')} left to write"
        message = f"The application changes documents of {self.index} as fast as they are written: {left}."
        raise VerificationFailed(message, "Run the same command again when the application writes less: it goes on.")

    def run(
        self, progress: BuildProgress = lambda *_: None, *, write: bool = True, after: Mapping[str, int] | None = None
    ) -> PassCounts:
        """Make one pass: read the documents, and send the writes that `writes_of` makes of each page; without `write` the writes are only counted.

        With `after` only documents are read that were written after these checkpoints (`ShardView.key` -> sequence number).
        """
        self.engine.request("POST", f"/{quote(self.index)}/_refresh")
        self.source.skipped.clear()
        piped = write and enriched_mapping.settings_of(self.engine, self.index).get("index.final_pipeline", "_none") != "_none"
        views = open_views(self.engine, self.index, [self.index], self.source.query, after)
        point = PointInTime(self.engine, self.source.query, views)
        counts = PassCounts(last={view.key: view.last for view in views})
        total = sum(view.documents for view in views)
        try:
            for hits in pages(point, dialect_of(self.engine.capabilities).source(), self.digest):
                counts.documents += len(hits)
                writes = list(self.writes_of(hits, counts))
                counts.stale += len(writes)
                if not write:
                    continue
                if uuid_of(self.engine, self.index) != views[0].uuid:  # else the server would make an index of this name anew
                    raise InputError(f"The index {self.index!r} was deleted meanwhile.", _MADE_AGAIN)
                unpiped = [(hit, _as_update(action)) for hit, action in writes] if piped else writes
                written = send(self.engine, self.index, unpiped)
                counts.written += written
                counts.conflicts += len(writes) - written
                progress("Enriching", counts.documents, total, f"written {counts.written:,}")
        finally:
            point.close()
        counts.documents -= self.source.skipped.count
        self.total.written += counts.written
        self.total.conflicts += counts.conflicts
        self.total.documents = counts.documents if after is None else self.total.documents
        return counts


def _as_update(action: dict[str, Any]) -> dict[str, Any]:
    """Return an action on which the server runs no final ingest pipeline: writing a whole document becomes an update that replaces the stored one."""
    if "index" not in action:
        return action
    script = {"lang": "painless", "source": "ctx._source = params.document", "params": {"document": action["index"]}}
    return {"update": {"script": script}}


def pages(point: PointInTime, source: Any, digest: str) -> Iterator[list[dict[str, Any]]]:
    """Yield all documents of a point in time, page by page, with `_source`, sequence number, primary term and routing.

    Args:
        point: The point in time.
        source: `_source` of the requests, which must give weights and vectors, too.
        digest: Name of a field whose value is given as the server indexed it; "": no such field is given.
    """
    body = {"_source": source, "docvalue_fields": [digest] if digest else [], "seq_no_primary_term": True}
    for view in point.views:
        if view.documents:
            for hits, _ in point.pages(view, view.first, view.last, body, lambda: _PAGE):
                if hits:
                    yield hits


def send(engine: Engine, index: str, writes: Sequence[Write]) -> int:
    """Send writes; returns how many were accepted. Writes were not accepted if the application had changed the document meanwhile.

    Writes that the server turns away because it is overloaded, its disk is full or a shard is away are sent again as long as the engine is
    patient. So is a request whose answer is lost: documents that it wrote then count as changed, and the next pass finds them correct.

    Raises:
        RefusedDocuments: The server does not take a document.
        EngineError: The server takes no documents at all.
    """
    statuses: list[int] = []
    left = writes

    def attempt() -> None:
        nonlocal left
        results = _results(engine, index, left)
        statuses.extend(result["status"] for result in results)
        away = [number for number, result in enumerate(results) if result["status"] in TURNED_AWAY]
        left = [left[number] for number in away]
        if left:
            status, reason = results[away[-1]]["status"], reason_of(results[away[-1]])
            hint = f"{block_hint(reason)} Run the command again: it goes on.".lstrip()
            request = f"POST /{index}/_bulk"
            raise EngineResponseError(status, reason, results, request=request, hint=hint, product=engine.product)

    if writes:
        engine.repeat(attempt)
    return sum(status < HTTPStatus.BAD_REQUEST for status in statuses)


def _results(engine: Engine, index: str, writes: Sequence[Write]) -> list[dict[str, Any]]:
    """Send writes once; returns the server's result for each write: its status, and the reason if the write was not accepted."""
    lines = []
    for hit, action in writes:
        ((kind, content),) = action.items()
        head = {"_id": hit["_id"], "if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
        head |= {"routing": hit["_routing"]} if "_routing" in hit else {}
        lines += [orjson.dumps({kind: head}), orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)]
    body = b"\n".join([*lines, b""])
    items = engine.request("POST", f"/{quote(index)}/_bulk", params=PARAMETERS, body=body, retry=False)["items"]  # `send` repeats
    results = [next(iter(item.values())) for item in items]
    for (hit, _), result in zip(writes, results, strict=True):
        reason = reason_of(result)
        status = result["status"] = known_status(result["status"], reason)
        if status == HTTPStatus.BAD_REQUEST:
            hint = "Correct the document, then run the command again."
            raise RefusedDocuments(f"The index {index} does not take document {hit['_id']!r}: {reason}.", hint)
        if status >= HTTPStatus.BAD_REQUEST and status not in _LATER:
            hint = f"{block_hint(reason)} Run the command again when that is fixed: it goes on.".lstrip()
            raise EngineError(f"The index {index} takes no documents: {reason} (status {status}).", hint)
    return results


def stale_writes(
    source: IndexSource,
    layout: DocumentLayout,
    encoder: TextEncoder,
    statistics: CorpusStatistics | None,
    hits: Sequence[Hit],
    counts: PassCounts,
) -> Iterator[Write]:
    """Encode the documents whose fields are missing or do not agree with their content, and yield the write that each needs."""
    needed = list(stale(source, layout, hits, counts))
    contents = [document.content for _, _, document, _ in needed if document is not None]
    encodings = iter(encoder.encode(contents, kind="document", statistics=statistics) if contents else ())
    for hit, rest, document, stored in needed:
        if document is None:
            yield hit, {"index": rest}
            continue
        encoding = next(encodings)
        body = enriched_mapping.signal_fields(layout, document, encoding, statistics)
        # A partial update merges objects: stale terms would stay among the new ones. Such a document is written as a whole.
        yield hit, {"index": {**rest, **body}} if stored.keys() - {"id"} else {"update": {"doc": body}}


def stale(
    source: IndexSource, layout: DocumentLayout, hits: Sequence[Hit], counts: PassCounts
) -> Iterator[tuple[Hit, dict[str, Any], Document | None, dict[str, Any]]]:
    """Yield for each document that needs a write: the hit, the application's fields, title and text, and the fields of the signals.

    A document that cannot be read any more has None for title and text, and loses the signals' fields, which are those of another text.
    """
    ours = enriched_mapping.field_names(layout)
    for hit in hits:
        stored = {name: hit["_source"][name] for name in ours if name in hit["_source"]}
        rest = {name: value for name, value in hit["_source"].items() if name not in ours or name == "id"}
        document = _document(source, hit["_id"], rest, layout)
        searched = enriched_mapping.digest_field(layout) in hit.get("fields", ())  # else it was copied before the mapping had it
        if document is not None and searched and enriched_mapping.agrees(layout, document, layout.of_signals(stored)):
            counts.unchanged += 1
        elif document is not None or stored.keys() - {"id"}:
            yield hit, rest, document, stored


def _document(source: IndexSource, identity: str, fields: dict[str, Any], layout: DocumentLayout) -> Document | None:
    """Read title and text of a document; None: the document cannot be read, and --skip-bad adds it to `IndexSource.skipped`.

    Raises:
        InputError: The document cannot be read, and --skip-bad was not given.
    """
    try:
        if not layout.prefix:
            entries.check_id(fields, identity)
        return entries.enriched_document(identity, fields, source.reading)
    except BadLine as bad:
        place = f"{source.name}, document {identity!r}"
        if not source.reading.skip_bad:
            raise bad.at(place, None) from None
        source.skipped.add(Skipped(None, str(bad), place))
        return None


def removing_writes(added: Collection[str], hits: Sequence[Hit], _: PassCounts) -> Iterator[Write]:
    """Yield the writes that remove the fields `added` by an enrichment from documents; an `id` that differs from the `_id` is the application's and stays."""
    for hit in hits:
        source = hit["_source"]
        ours = {*added} if source.get("id") == hit["_id"] else {*added} - {"id"}
        if source.keys() & ours:
            yield hit, {"index": {name: value for name, value in source.items() if name not in ours}}


def checkpoints(engine: Engine, index: str) -> dict[str, int]:
    """Return for each open shard (`ShardView.key`) the sequence number up to which every write is done on all of its copies.

    The highest number would not do: writes run at the same time, so a higher number can be visible before a lower one.

    Raises:
        InputError: The index was deleted.
    """
    uuid = uuid_of(engine, index)
    numbers = sequence_numbers(engine, index).items()
    return {ShardView(index, shard, uuid).key: each["global_checkpoint"] for shard, each in numbers}


@dataclass
class Watch:
    """Looks for documents that the application has written to an index since the index was read.

    A copy of a shard that is cut off from the other copies may answer without their last writes. So writes that a look missed are looked for again.

    Attributes:
        passes: The passes that enrich the index.
        done: Shard -> the checkpoint up to which the shard was read; a shard without a checkpoint is read from its beginning.
        missed: Shard -> how many looks in a row have not reached the last writes.
    """

    passes: IndexPasses
    done: dict[str, int]
    missed: Counter[str] = field(default_factory=Counter)

    def look(self) -> PassCounts | None:
        """Enrich the documents that were written since the last look, and return the counts of the pass; None: nothing was written.

        Documents that are written meanwhile, even while they are read, are left to the next look.

        Raises:
            InputError: The index was deleted, and perhaps made again.
        """
        reached, done = checkpoints(self.passes.engine, self.passes.index), self.done
        if len({shard.partition("/")[0] for shard in (*done, *reached)}) > 1:
            raise InputError(f"The index {self.passes.index!r} was deleted and made again.", _MADE_AGAIN)
        if all(number <= done.get(shard, -1) for shard, number in reached.items()):
            return None
        counts = self.passes.run(after=dict(done))
        for shard, number in reached.items():
            behind = done.get(shard, -1) < number and counts.last.get(shard, -1) < number
            self.missed[shard] = self.missed[shard] + 1 if behind else 0
            if not behind or self.missed[shard] == _LOOKS:
                done[shard], self.missed[shard] = number, 0
        return counts
