"""Building a generation: survey, create, send, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The survey counts the collection statistics that term weights stand on, enters every document
in the ledger and draws the sample that fixes the scale of the weights; the second pass encodes and sends what the ledger
does not know to be acknowledged. So a build that was killed goes on where it stopped.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from termweave import __version__, encoders, plugins
from termweave.errors import InputError, RefusedDocuments, UsageError, VerificationFailed
from termweave.indexer import generations, unfinished
from termweave.indexer.ledger import Entry, Ledger
from termweave.indexer.sending import Item, Sender
from termweave.indexer.verification import verify
from termweave.search import lineage, stored_statistics
from termweave.signals import DocumentLayout, Fitting, signal_class
from termweave.signals.layout import engine_id, source_digest
from termweave.statistics import CorpusStatistics, StatisticsCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.records import Capabilities, Document
    from termweave.search.lineage import Lineage

    #: (stage, done, total or None, note)
    Progress = Callable[[str, int, int | None, str], None]

#: A block is encoded at once: enough texts to fill length buckets, few enough to stay small in memory.
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 512, 4_000_000
#: A batch is sent at once.
_BATCH_BYTES = 4 * 1024 * 1024
#: Texts whose impacts fix the scale of the weights.
_SAMPLE = 512
#: Duplicates and refusals named in a message; the rest is counted.
_NAMED = 5


@dataclass(frozen=True)
class Options:
    """How to build.

    Attributes:
        weights: Weights model; None: the shipped one; "none": no weights.
        dense: Dense model, likewise.
        signals: Names of signals; None: all that models and server allow.
        analyzer: OpenSearch analyzer of the text.
        shards: Primary shards.
        replicas: Copies; None: 1 where there are several data nodes, else 0.
        settings: Further index settings.
        workers: Connections that send at once.
        fresh: Throw an unfinished generation away instead of resuming it.
        skip_bad: Leave out what cannot be read, and the second of two documents with one id.
    """

    weights: str | None = None
    dense: str | None = None
    signals: tuple[str, ...] | None = None
    analyzer: str = "english"
    shards: int = 1
    replicas: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 2
    fresh: bool = False
    skip_bad: bool = False


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
    """

    name: str
    index: str
    documents: int
    sent: int
    seconds: float
    signals: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass
class _Generation:
    """A generation under construction."""

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    ledger: Ledger
    notes: list[str]


def build(engine: Engine, source: Source, name: str, options: Options, progress: Progress = lambda *_: None) -> Built:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Raises:
        UsageError: The name, a signal or a model cannot be meant.
        InputError: The source holds what cannot be read, or an id twice.
        RefusedDocuments: The engine refused documents; the alias was not moved.
        VerificationFailed: What is stored is not what was sent; the alias was not moved.
    """
    started = time.monotonic()
    generations.check_name(engine, name)
    before = generations.live(engine, name)
    encoder = encoders.load(weights=options.weights, dense=options.dense)
    signals, notes = _choose(options, encoder, engine.capabilities)
    fingerprint = _fingerprint(source, encoder, signals, options)
    generation = unfinished.resume(engine, name, fingerprint, fresh=options.fresh)
    if generation is None:
        current = _begin(engine, source, name, encoder, signals, fingerprint, options, notes, progress)
    else:
        current = _reopen(engine, *generation, notes)
    with current.ledger:
        sent = _send(engine, source, encoder, current, options, progress)
        _settle(engine, current, options)
        complete = replace(current.lineage, complete=True)
        lineage.write(engine, current.index, complete)
        generations.publish(engine, name, current.index, before)
        current.ledger.set("state", "complete")
        return Built(
            name, current.index, current.ledger.acknowledged, sent, time.monotonic() - started, tuple(signals), tuple(current.notes)
        )


def fingerprint_of(source: Source, engine: Engine, options: Options) -> str:
    """The fingerprint that `build` would give a generation: equal ones make equal indices."""
    encoder = encoders.load(weights=options.weights, dense=options.dense)
    return _fingerprint(source, encoder, _choose(options, encoder, engine.capabilities)[0], options)


def _choose(options: Options, encoder: TextEncoder, capabilities: Capabilities) -> tuple[list[str], list[str]]:
    """The signals of the new generation, and what to say of those left out."""
    chosen, notes = [], []
    for name in options.signals or _in_order(plugins.names("signals")):
        cls = signal_class(name)
        why = cls.unavailable(capabilities)
        if cls.needs is not None and cls.needs not in encoder.models:
            why = why or f"no model gives {cls.needs!r}"
        if why is None:
            chosen.append(name)
        elif options.signals:
            raise UsageError(f"The signal {name!r} cannot be built: {why}.", "Leave it out of --signals, or supply what it needs.")
        else:
            notes.append(f"The signal {name!r} is left out: {why}.")
    if not chosen:
        raise UsageError("No signal is left to index with.", "Name some with --signals lexical,weights,dense.")
    return chosen, notes


def _in_order(names: tuple[str, ...]) -> list[str]:
    """Plain text first, then what stands on models: the order in which tables show them."""
    return sorted(names, key=lambda name: (signal_class(name).needs or "", name) if signal_class(name).needs != "dense" else ("z", name))


def _fingerprint(source: Source, encoder: TextEncoder, signals: list[str], options: Options) -> str:
    from hashlib import blake2b  # noqa: PLC0415

    parts = {
        "source": source.fingerprint,
        "models": {output: model.hash for output, model in encoder.models.items()},
        "signals": signals,
        "analyzer": options.analyzer,
        "shards": options.shards,
        "settings": dict(options.settings),
        "skip_bad": options.skip_bad,
        "schema": lineage.SCHEMA,
    }
    return blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _begin(
    engine: Engine,
    source: Source,
    name: str,
    encoder: TextEncoder,
    signals: list[str],
    fingerprint: str,
    options: Options,
    notes: list[str],
    progress: Progress,
) -> _Generation:
    """Survey the source and create the empty index."""
    index = generations.new_name(name, fingerprint)
    ledger = unfinished.open_ledger(engine, index)
    try:
        statistics, sample = _survey(source, encoder, ledger, notes, options, progress)
        encoded = encoder.encode(sample, kind="document", statistics=statistics) if encoder.models and sample else []
        fitting = Fitting(engine.capabilities, encoded, encoder.dimension, options.analyzer)
        layout = DocumentLayout([signal_class(each).fit(fitting) for each in signals])
        found = lineage.Lineage(
            name=name,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            termweave=__version__,
            source={"name": source.name, "fingerprint": source.fingerprint},
            fingerprint=fingerprint,
            signals={signal.name: signal.parameters() for signal in layout.signals},
            models={output: lineage.ModelLineage(model.name, model.hash) for output, model in encoder.models.items()},
            statistics={} if statistics is None else _described(statistics),
            documents=ledger.total,
        )
        settings = {"index.number_of_shards": options.shards, **options.settings}
        generations.create(engine, index, layout, found, settings)
        if statistics is not None:
            stored_statistics.save(engine, index, statistics, {"index.number_of_shards": 1, "index.number_of_replicas": _replicas(engine, options)})
        ledger.set("name", name)
        ledger.set("lineage", asdict(found))
        ledger.set("state", "building")
    except BaseException:
        unfinished.discard(ledger)
        raise
    return _Generation(index, found, layout, statistics, ledger, notes)


def _reopen(engine: Engine, index: str, found: Lineage, ledger: Ledger, notes: list[str]) -> _Generation:
    statistics = stored_statistics.load(engine, index, found.statistics["hash"]) if found.statistics else None
    notes = [*notes, f"Resumed {index}: {ledger.acknowledged:,} of {ledger.total:,} documents were there already."]
    return _Generation(index, found, DocumentLayout.from_meta(found.signals), statistics, ledger, notes)


def _described(statistics: CorpusStatistics) -> dict[str, Any]:
    return {
        "hash": statistics.hash,
        "analysis": statistics.analysis,
        "documents": statistics.documents,
        "average_length": statistics.average_length,
    }


def _survey(
    source: Source, encoder: TextEncoder, ledger: Ledger, notes: list[str], options: Options, progress: Progress
) -> tuple[CorpusStatistics | None, list[str]]:
    """Enter every document in the ledger; count the statistics; draw a sample of texts."""
    counter = StatisticsCounter(encoder.analysis) if encoder.analysis else None
    chance = random.Random(0)  # noqa: S311 - a sample, not a secret
    sample: list[str] = []
    seen = 0
    repeated = 0
    for block in blocks(source.documents()):
        duplicates = ledger.enter([Entry(document.id, document.line, source_digest(document)) for document in block])
        repeated += len(duplicates)
        different = [duplicate for duplicate in duplicates if not duplicate.same]
        if different and not options.skip_bad:
            first = different[0]
            raise InputError(
                f"{source.name}: the id {first.id!r} stands on line {first.first_line} and, with other content, on line {first.line}.",
                "Give every document an id of its own, or keep the first of each with --skip-bad.",
            )
        again = {(duplicate.id, duplicate.line) for duplicate in duplicates}
        kept = [document for document in block if (document.id, document.line) not in again]
        texts = [document.content for document in kept]
        if counter is not None:
            for terms in encoder.analyse(texts):
                counter.add(terms)
        for text in texts:
            seen += 1
            if len(sample) < _SAMPLE:
                sample.append(text)
            elif (place := chance.randrange(seen)) < _SAMPLE:
                sample[place] = text
        progress("Reading", seen, source.total, "")
    if repeated:
        notes.append(f"{repeated:,} document{'s' if repeated > 1 else ''} repeated an id that was there before; the first of each was kept.")
    if source.skipped:
        named = "; ".join(str(each) for each in source.skipped.kept[:_NAMED])
        notes.append(f"{source.skipped.count:,} entries could not be read and were skipped ({named}{'; ...' if source.skipped.count > _NAMED else ''}).")
    if not seen:
        raise InputError(f"{source.name} holds no documents.", "Name a corpus.jsonl, a folder that holds one, or 'demo'.")
    return (counter.result() if counter is not None else None), sample


def _send(engine: Engine, source: Source, encoder: TextEncoder, current: _Generation, options: Options, progress: Progress) -> int:
    """Encode and send what is not acknowledged yet; returns how many documents that were."""
    ledger, total = current.ledger, current.ledger.total
    done = first = ledger.acknowledged
    if done == total:
        return 0
    sender = Sender(engine, current.index, acknowledged=ledger.acknowledge, refused=ledger.refuse, workers=options.workers)
    try:
        progress("Indexing", done, total, "")
        for block in blocks(source.documents()):
            waiting = ledger.pending([(document.id, document.line) for document in block])
            todo = [document for document in block if (document.id, document.line) in waiting]
            if not todo:
                continue
            encodings = encoder.encode([document.content for document in todo], kind="document", statistics=current.statistics)
            for batch in _batches(current.layout, zip(todo, encodings, strict=True)):
                sender.submit(batch)
                done += len(batch)
                progress("Indexing", done, total, "")
        sender.close()
    except BaseException:
        sender.abandon()  # what is acknowledged is in the ledger: the next run goes on from there
        raise
    return done - first


def blocks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Documents in blocks that are bounded by number and by size."""
    block: list[Document] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document.text) + len(document.title)
        if len(block) >= _BLOCK_DOCUMENTS or size >= _BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _batches(layout: DocumentLayout, pairs: Any) -> Iterator[list[Item]]:
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
        named = "; ".join(f"{identity!r}{f' (line {line})' if line else ''}: {reason}" for identity, line, reason in refused[:_NAMED])
        raise RefusedDocuments(
            f"The engine refused {len(refused):,} of {current.ledger.total:,} documents: {named}{'; ...' if len(refused) > _NAMED else ''}.",
            f"{current.index} was not published. All refusals: {unfinished.refusal_file(current.ledger)}. Mend them in the source and index again.",
        )
    difference = verify(engine, current.index, current.ledger, current.layout)
    if not difference.ok:
        raise VerificationFailed(
            f"{current.index} holds {difference.counted:,} documents and should hold {difference.expected:,}: "
            f"{len(difference.missing)} missing, {len(difference.extra)} extra, {len(difference.altered)} altered.",
            "It was not published. Run the same command with --fresh.",
        )


def _replicas(engine: Engine, options: Options) -> int:
    if options.replicas is not None:
        return options.replicas
    health = engine.request("GET", "/_cluster/health")
    return 1 if health["number_of_data_nodes"] > 1 else 0
