"""Building a generation: survey, create, send, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The survey counts the collection statistics that term weights stand on and enters every document
in the ledger; the second pass encodes and sends what the ledger does not know to be acknowledged. So a build that was
killed goes on where it stopped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from termweave import __version__
from termweave.engine import EngineResponseError
from termweave.errors import EngineError, GateNotMet, RefusedDocuments, VerificationFailed
from termweave.indexer import generations, ledgers, resuming, summary
from termweave.indexer.plan import Options, Plan, plan
from termweave.indexer.sending import Item, Sender
from termweave.indexer.survey import blocks, survey
from termweave.indexer.verification import verify
from termweave.search import lineage, stored_statistics
from termweave.signals import DocumentLayout, Fitting, signal_class
from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger
    from termweave.indexer.survey import Progress
    from termweave.records import Document, Encoding
    from termweave.search.lineage import Lineage
    from termweave.statistics import CorpusStatistics

#: Bytes of one `_bulk` request.
_BATCH_BYTES = 4 * 1024 * 1024
#: Refusals named in a message; all of them are in the file it names.
_NAMED = 5
_FORBIDDEN = 403


@dataclass(frozen=True)
class Built:
    """What a build did.

    Attributes:
        name: The alias.
        index: The generation it points at now.
        documents: Documents in it.
        sent: Documents sent by this run (fewer than `documents` after a resume).
        seconds: Wall-clock time.
        signals: Names of its signals.
        notes: What a user should know: left-out signals, skipped documents, a resume.
        warnings: What a user should not miss.
    """

    name: str
    index: str
    documents: int
    sent: int
    seconds: float
    signals: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass
class _Generation:
    """A generation under construction."""

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    ledger: Ledger
    notes: list[str]


def build(
    engine: Engine,
    source: Source,
    name: str,
    options: Options,
    progress: Progress = lambda *_: None,
    gate: Callable[[str], None] = lambda _: None,
) -> Built:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Args:
        engine: Where.
        source: What.
        name: The alias.
        options: How.
        progress: Told (stage, done, total or None).
        gate: Called with the verified generation; raises `GateNotMet` when it must not be published.

    Raises:
        TermweaveError: Another build of the name is running on this host.
        GateNotMet: The gate said no; the alias was not moved.
        UsageError: The name, a signal or a model cannot be meant.
        InputError: The source holds what cannot be read, or an id twice.
        RefusedDocuments: The engine refused documents; the alias was not moved.
        VerificationFailed: What is stored is not what was sent; the alias was not moved.
    """
    started = time.monotonic()
    generations.check_name(engine, name)
    with ledgers.lease(engine, name):
        before = generations.live(engine, name)
        planned = plan(source, engine.capabilities, options)
        found = resuming.resume(engine, name, planned.fingerprint, fresh=options.fresh)
        current = _begin(engine, source, name, planned, progress) if found is None else _reopen(engine, *found)
        with current.ledger as ledger:
            sent = _send(engine, source, planned, current, progress)
            try:
                _settle(engine, current, options)
                current.notes.extend(summary.stored(engine, current.index, current.layout))
                gate(current.index)
            except (RefusedDocuments, VerificationFailed, GateNotMet):
                ledger.put("state", "rejected")  # the same command may try again; a mended source begins anew
                raise
            lineage.write(engine, current.index, replace(current.lineage, complete=True))
            generations.publish(engine, name, current.index, before)
            ledger.put("state", "complete")
            return Built(
                name=name,
                index=current.index,
                documents=ledger.acknowledged,
                sent=sent,
                seconds=time.monotonic() - started,
                signals=planned.signals,
                notes=(*planned.notes, *current.notes),
                warnings=planned.warnings,
            )


def up_to_date(engine: Engine, source: Source, name: str, options: Options) -> str | None:
    """The live generation of `name`, if a build from this source, these models and these settings would only make it again."""
    index = generations.live(engine, name)
    if index is None:
        return None
    same = lineage.read(engine, index).fingerprint == plan(source, engine.capabilities, options).fingerprint
    return index if same else None


def _begin(engine: Engine, source: Source, name: str, planned: Plan, progress: Progress) -> _Generation:
    """Survey the source and create the empty index."""
    options, encoder = planned.options, planned.encoder
    index = generations.new_name(name)
    ledger = ledgers.open_(engine, index)
    try:
        surveyed = survey(source, encoder, ledger, skip_bad=options.skip_bad, progress=progress)
        statistics = surveyed.statistics
        sample = encoder.encode(surveyed.sample, kind="document", statistics=statistics)
        fitting = Fitting(engine.capabilities, sample, encoder.dimension, planned.analyzer, options.prune)
        layout = DocumentLayout([signal_class(each).fit(fitting) for each in planned.signals])
        found = lineage.Lineage(
            name=name,
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            termweave=__version__,
            source={"name": source.name, "fingerprint": source.fingerprint},
            fingerprint=planned.fingerprint,
            signals={signal.name: signal.parameters() for signal in layout.signals},
            models={output: lineage.ModelLineage(model.name, model.hash) for output, model in encoder.models.items()},
            statistics={} if statistics is None else _described(statistics),
            documents=ledger.total,
        )
        generations.create(engine, index, layout, found, {"index.number_of_shards": options.shards, **options.settings})
        if statistics is not None:
            stored_statistics.save(engine, index, statistics, {"index.number_of_replicas": _replicas(engine, options)})
        ledger.put("name", name)
        ledger.put("lineage", asdict(found))
        ledger.put("state", "building")
    except BaseException:
        with suppress(EngineError):  # what this call made and nobody could resume
            generations.remove(engine, index)
        ledgers.discard(ledger)
        raise
    return _Generation(index, found, layout, statistics, ledger, surveyed.notes)


def _reopen(engine: Engine, index: str, found: Lineage, ledger: Ledger) -> _Generation:
    statistics = stored_statistics.load(engine, index, found.statistics["hash"]) if found.statistics else None
    note = f"Resumed {index}: {ledger.acknowledged:,} of {ledger.total:,} documents were there already."
    return _Generation(index, found, DocumentLayout.from_meta(found.signals), statistics, ledger, [note])


def _described(statistics: CorpusStatistics) -> dict[str, Any]:
    return {
        "hash": statistics.hash,
        "analysis": statistics.analysis,
        "documents": statistics.documents,
        "average_length": statistics.average_length,
    }


def _send(engine: Engine, source: Source, planned: Plan, current: _Generation, progress: Progress) -> int:
    """Encode and send what is not acknowledged yet; returns how many documents that were."""
    ledger, total = current.ledger, current.ledger.total
    done = first = ledger.acknowledged
    if done == total:
        return 0
    workers = planned.options.workers
    sender = Sender(engine, current.index, acknowledged=ledger.acknowledge, refused=ledger.refuse, workers=workers)
    try:
        progress("Indexing", done, total)
        for block in blocks(source.documents()):
            waiting = ledger.pending([(document.id, document.line) for document in block])
            todo = [document for document in block if (document.id, document.line) in waiting]
            texts = [document.content for document in todo]
            encodings = planned.encoder.encode(texts, kind="document", statistics=current.statistics)
            for batch in _batches(current.layout, zip(todo, encodings, strict=True)):
                sender.submit(batch)
                done += len(batch)
                progress("Indexing", done, total)
        sender.close()
    except BaseException:
        sender.abandon()  # what is acknowledged is in the ledger: the next run goes on from there
        raise
    return done - first


def _batches(layout: DocumentLayout, pairs: Iterable[tuple[Document, Encoding]]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for document, encoding in pairs:
        body = layout.document(document, encoding)
        action = orjson.dumps({"index": {"_id": engine_id(document.id)}})
        lines = action + b"\n" + orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        batch.append(Item(document.id, document.line, lines, body["encoding_digest"]))
        size += len(lines)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _settle(engine: Engine, current: _Generation, options: Options) -> None:
    """Make the generation searchable and prove that it is whole."""
    generations.finish(engine, current.index, dict(options.settings), _replicas(engine, options))
    refused = current.ledger.refused()
    if refused:
        named = "; ".join(
            f"{_short(identity)!r}{f' (line {line})' if line else ''}: {reason}" for identity, line, reason in refused[:_NAMED]
        )
        file = ledgers.refusal_file(current.ledger)
        raise RefusedDocuments(
            f"The engine refused {len(refused):,} of {current.ledger.total:,} documents: "
            f"{named}{'; ...' if refused[_NAMED:] else ''}.",
            f"{current.index} was not published. All refusals: {file}. Mend them in the source and index again.",
        )
    found = verify(engine, current.index, current.ledger, current.layout)
    if not found.ok:
        raise VerificationFailed(
            f"{current.index} holds {found.counted:,} documents and should hold {found.expected:,}: "
            f"{len(found.missing)} missing, {len(found.extra)} extra, {len(found.altered)} altered.",
            "It was not published. Run the same command with --fresh.",
        )


def _short(identity: str) -> str:
    return identity if len(identity) <= 60 else f"{identity[:57]}..."


def _replicas(engine: Engine, options: Options) -> int:
    if options.replicas is not None:
        return options.replicas
    try:
        return 1 if engine.request("GET", "/_cluster/health")["number_of_data_nodes"] > 1 else 0
    except EngineResponseError as error:
        if error.status != _FORBIDDEN:
            raise
        return 1  # this role may not ask; a copy that finds no second node harms nobody
