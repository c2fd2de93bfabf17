"""Enrichment: write the fields of the signals into an existing index of another application, beside its own fields.

The state is in the index alone. Every document is compared by two digests that stand beside its fields: one of its title, text and
other fields, one of the encoding. What differs, because the application changed it or because an earlier command was stopped, is encoded
and written; what agrees is left alone. Each write names the sequence number at which the document was read (``if_seq_no``), so
a write of the application is never undone: such a document is read and encoded again. The last pass writes nothing: it verifies.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from termweave.catalog import audit, statistics_store
from termweave.catalog.source_fields import Fields
from termweave.corpora.sources import Skips
from termweave.encoders.recorded_models import encoder_of, remember
from termweave.engine.client.payloads import quote
from termweave.errors import UsageError
from termweave.indexer.build_plan import BuildPlan, plan
from termweave.indexer.enrichment import enriched_mapping, index_passes
from termweave.indexer.enrichment.index_passes import IndexPasses
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.ledger import temporary_ledger
from termweave.indexer.preparation.corpus_pass import BuildProgress, read_corpus
from termweave.indexer.preparation.corpus_remarks import unreadable
from termweave.indexer.preparation.estimate import estimate_build
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.catalog.lineage import Lineage
    from termweave.corpora.index.source import IndexSource
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.signals.lexical import Lexical
    from termweave.statistics import CorpusStatistics

#: The stage of the progress while the application's writes are awaited.
STAGE = "Watching"


@dataclass(frozen=True)
class Enriched:
    """The result of an enrichment.

    Attributes:
        index: The concrete index.
        documents: Documents that have the fields, at the end.
        written: Documents that were written.
        conflicts: Writes that were given up because the document had changed, by the application or by a write whose answer was lost; a later
            pass looked at it again.
        signals: Names of the signals.
        notes: What a user should know.
    """

    index: str
    documents: int
    written: int
    conflicts: int
    signals: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class EnrichmentPlan:
    """What an enrichment would do.

    Attributes:
        index: The concrete index.
        documents: Documents in it that can be read.
        to_write: Documents whose fields are missing or do not agree with their content.
        signals: Names of the signals.
        models: Output -> name of the model.
        seconds: Time to encode them on this machine under its present load; None where an earlier enrichment goes on.
        notes: What a user should know.
    """

    index: str
    documents: int
    to_write: int
    signals: tuple[str, ...]
    models: Mapping[str, str]
    seconds: float | None = None
    notes: tuple[str, ...] = ()


def enrich(
    engine: Engine,
    source: IndexSource,
    options: BuildOptions,
    progress: BuildProgress = lambda *_: None,
    *,
    close: bool = False,
    lexical: Mapping[str, float] = MappingProxyType({}),
    every: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Enriched:
    """Write the signals' fields into the index that `source` reads, and verify them.

    With `every` the index is read once and then watched: what the application has written since the beginning gets its fields, until a
    KeyboardInterrupt, which ends the function in order. A run that was killed leaves nothing undone either: the next one finds what lacks its fields.

    Args:
        engine: The server of the index.
        source: The index; an alias must stand for one index.
        options: Models, signals, `patience` and `skip_bad` are used.
        progress: Called with (stage, done, total).
        close: Whether the index may be closed for a moment, which the signal learned needs.
        lexical: Text fields of the application that the signal lexical searches -> their weights; {}: those of title and text, or as before.
        every: Seconds between two looks for documents that the application wrote; None: it is not watched.
        say: Called with a sentence about each document that the watch leaves out.

    Raises:
        UsageError: Server, mapping or settings do not allow it; the message says what to do.
        RefusedDocuments: The server refused documents.
        VerificationFailed: The application changed documents as fast as they were enriched.
    """
    engine = engine.patient(options.patience)
    index = enriched_mapping.one_index(source)
    with storage.lease(engine, index) as lease:
        before = enriched_mapping.lineage_of(source, index)
        made, encoder, statistics, notes = (
            _begin(engine, source, index, options, progress, lexical, close=close)
            if before is None
            else _resume(engine, source, index, before, options, lexical)
        )
        stale_writes = partial(index_passes.stale_writes, source, made.layout, encoder, statistics)
        passes, left_out = IndexPasses(engine, source, index, stale_writes), source.skipped
        total = passes.total
        seen = index_passes.checkpoints(engine, index) if every is not None else {}
        first = passes.repeat(progress, "differ", once=every is not None)  # the watch goes on where this pass began
        if before is not None:
            kept = f"{first.kept:,} of {counted(first.documents, 'document')}"
            notes.append(f"{kept} had the fields already, with the same content: they were not written again.")
        enriched_mapping.write_lineage(engine, index, replace(made, complete=True, documents=total.documents))
        try:
            if every is not None:
                left_out = _watch(passes, seen, every, lease, progress, say)
                total.documents = enriched_mapping.count(engine, index, made.layout)
        finally:
            if total.written:
                audit.write(engine, "enrich", index, before=index, after=index, documents=total.written)
    notes += [each for each in unreadable(left_out) if each not in notes]
    return Enriched(index, total.documents, total.written, total.conflicts, tuple(made.signals), tuple(notes))


def _watch(
    passes: IndexPasses, seen: Mapping[str, int], every: float, lease: Lease, progress: BuildProgress, say: Callable[[str], None]
) -> Skips:
    """Enrich what the application writes, until a KeyboardInterrupt.

    Args:
        passes: Reads and writes the index, and has made the first pass.
        seen: The checkpoints at which that pass began.
        every: Seconds between two looks.
        lease: Of the index; lost, it ends the watch.
        progress: Called with (stage, written, None, time).
        say: Called with a sentence about each document that cannot be read.

    Returns:
        The documents that cannot be read, also those that the first pass came upon.
    """
    left_out = Skips()

    def name_skipped() -> None:
        for skipped in passes.source.skipped:
            if skipped not in left_out.kept:
                left_out.add(skipped)
                say(f"Left out: {skipped}.")

    def read(after: Mapping[str, int]) -> Mapping[str, int]:
        lease.check()
        counts = passes.run(after=after)
        name_skipped()
        if counts.written:
            progress(STAGE, passes.total.written, None, f"last written {time.strftime('%H:%M:%S')}")
        return counts.last

    name_skipped()
    progress(STAGE, passes.total.written, None)
    with suppress(KeyboardInterrupt):
        index_passes.watch(passes.engine, passes.index, seen, every, read)
    return left_out


def plan_enrichment(
    engine: Engine, source: IndexSource, options: BuildOptions, progress: BuildProgress = lambda *_: None
) -> EnrichmentPlan:
    """Check everything that `enrich` checks, and say what it would do. Nothing is written.

    Raises:
        UsageError: Server, mapping or settings do not allow it; the message says what to do.
    """
    index = enriched_mapping.one_index(source)
    before = enriched_mapping.lineage_of(source, index)
    if before is not None:
        _check_unchanged(source, before, options)
        stale = partial(index_passes.stale, source, before.layout)
        counts = IndexPasses(engine, source, index, stale).run(progress, write=False)
        models = {output: model.name for output, model in before.models.items()}
        to_write = counts.documents - counts.kept
        notes = tuple(unreadable(source.skipped))
        return EnrichmentPlan(index, counts.documents, to_write, tuple(before.signals), models, notes=notes)
    planned = _planned(engine, source, index, options)
    estimate = estimate_build(source, engine.capabilities, planned.options, progress=progress)
    closes = "learned" in planned.signals
    closing = ["The index must be closed for about a second, for the analyzers of learned: add --yes."] if closes else []
    notes = (*estimate.warnings, *planned.notes, *closing)
    return EnrichmentPlan(index, source.total, source.total, planned.signals, estimate.models, estimate.encode_seconds, notes)


def remove(
    engine: Engine,
    source: IndexSource,
    progress: BuildProgress = lambda *_: None,
    *,
    close: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Remove the fields of an enrichment from all documents, its lineage and its statistics; returns the number of documents.

    Args:
        engine: The server.
        source: The index, opened without its texts.
        progress: Called with (stage, done, total).
        close: Whether the index may be closed for a moment, to remove analyzers, too.
        say: Called with a sentence about each thing that stays.

    Raises:
        UsageError: The index was not enriched.
        VerificationFailed: The application changed documents as fast as they were written; the lineage stays.
    """
    index = enriched_mapping.one_index(source)
    made, written = enriched_mapping.lineage_of(source, index), 0
    if made is not None:
        with storage.lease(engine, index):
            removing_writes = partial(index_passes.removing_writes, set(made.source["enriched"].split()))
            passes = IndexPasses(engine, source, index, removing_writes)
            passes.repeat(progress, "have the fields")
            if made.statistics and not statistics_store.is_taken(engine, index):
                engine.request("DELETE", f"/{quote(statistics_store.companion(index))}", params={"ignore_unavailable": True})
            enriched_mapping.write_lineage(engine, index, None)  # last: without it the command could not be repeated
        written = passes.total.written
        audit.write(engine, "remove fields", index, before=index, after=index, documents=written)
    stay = list(enriched_mapping.remove_settings(engine, index, close=close))
    if made is None and not stay:
        raise UsageError(f"{index!r} was not enriched.", "'termweave enrich' does that.")
    for sentence in stay:
        say(sentence)
    return written


def _planned(engine: Engine, source: IndexSource, index: str, options: BuildOptions) -> BuildPlan:
    """The plan of a first enrichment, which the index allows.

    Where no signals are named, they are those of `SIGNALS` whose model the user did not turn off; lexical writes nothing.
    """
    asked = tuple(name for name in options.signals or () if name != "lexical")
    if options.signals and not asked:
        raise UsageError(
            "An enrichment writes weights, dense or learned; lexical searches what the index has.",
            "Add one of them to --signals.",
        )
    signals = asked or tuple(name for name in enriched_mapping.SIGNALS if getattr(options, name) != "none")
    planned = plan(source, engine.capabilities, replace(options, signals=signals))
    enriched_mapping.check_index(engine, source, index, planned.signals)
    return planned


def _begin(
    engine: Engine,
    source: IndexSource,
    index: str,
    options: BuildOptions,
    progress: BuildProgress,
    lexical: Mapping[str, float],
    *,
    close: bool,
) -> tuple[Lineage, TextEncoder, CorpusStatistics | None, list[str]]:
    """Count the statistics, check that the index can take the fields, and add them to its mapping."""
    planned = _planned(engine, source, index, options)
    words = enriched_mapping.lexical(source, index, lexical)
    remember(planned.encoder.models.values())
    with temporary_ledger() as ledger:
        corpus = read_corpus(source, planned.encoder, ledger, skip_bad=options.skip_bad, progress=progress)
    sample = planned.encoder.encode([each.content for each in corpus.sample], kind="document", statistics=corpus.statistics)
    written = planned.layout(engine.capabilities, sample, corpus.statistics)
    inside = [replace(signal, prefix=f"{enriched_mapping.OBJECT}.") for signal in written.signals]
    layout = replace(written, signals=[*([words] if words else []), *inside])
    fields = enriched_mapping.fields_of(engine, source, index, layout)
    enriched_mapping.add_settings(engine, index, layout, close=close)
    # For later commands.
    origin = {"name": source.name, "fingerprint": "", "enriched": enriched_mapping.OBJECT, "fields": _fields(source)}
    made = planned.lineage(engine, index, layout, corpus.statistics, origin)
    enriched_mapping.add_fields(engine, source, index, fields)  # first: a refusal leaves nothing behind
    if corpus.statistics is not None:
        statistics_store.save(engine, index, corpus.statistics, {"index.auto_expand_replicas": "0-1"})
    enriched_mapping.write_lineage(engine, index, made)
    return made, planned.encoder, corpus.statistics, [*planned.notes, *corpus.notes, _about(words)]


def _about(words: Lexical | None) -> str:
    """A sentence about the signal lexical."""
    if words is None:
        return (
            "No text field is among those of title and text, so that there is no signal lexical: name some with --lexical-field."
        )
    return f"The signal lexical searches the application's own {', '.join(f'{name}^{weight:g}' for name, weight in words.text_fields.items())}."


def _fields(source: IndexSource) -> str:
    """The fields that are read, as the lineage stores them."""
    return orjson.dumps(asdict(source.reading.fields)).decode()


def _check_unchanged(source: IndexSource, made: Lineage, options: BuildOptions) -> None:
    """Refuse signals and fields other than those of the first enrichment.

    Raises:
        UsageError: The message names those.
    """
    stored = made.source.get("fields") or _fields(source)
    written = made.signals.keys() - {"lexical"}
    if options.signals and {*options.signals} - {"lexical"} != written:
        first, flags = f"the signals {', '.join(sorted(written))}", "--signals"
    elif stored != _fields(source):
        named = Fields(**orjson.loads(stored)).named()
        first, flags = f"the fields {', '.join(named) or 'of usual names'}", "--title-field and --text-field"
    else:
        return
    raise UsageError(
        f"{made.name!r} was enriched with {first}.",
        f"Leave {flags} out, or remove what was written by 'termweave enrich {made.name} --remove' and enrich it anew.",
    )


def _resume(
    engine: Engine, source: IndexSource, index: str, made: Lineage, options: BuildOptions, lexical: Mapping[str, float]
) -> tuple[Lineage, TextEncoder, CorpusStatistics | None, list[str]]:
    """Go on with the models and statistics of an earlier enrichment."""
    _check_unchanged(source, made, options)
    encoder = encoder_of(made, index, {"weights_otherwise": options.weights, "dense_otherwise": options.dense})
    remember(encoder.models.values())
    notes = ["Models and statistics are those of the first enrichment ('enrich --remove' begins anew)."]
    words = enriched_mapping.lexical(source, index, lexical, made.layout.prefix)
    if words is not None and (lexical or "lexical" not in made.signals):
        made = replace(made, signals={**made.signals, words.name: words.parameters()})
        notes.append(_about(words))
    return made, encoder, statistics_store.load(engine, index, made), notes
