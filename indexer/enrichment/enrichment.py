"""Enrichment: write the fields of the signals into an existing index of another application, beside its own fields.

The state is in the index alone. Every document is compared by two digests that stand beside its fields: one of its title, text and
other fields, one of the encoding. What differs, because the application changed it or because an earlier command was stopped, is encoded
and written; what agrees is left alone. Each write names the sequence number at which the document was read (``if_seq_no``), so
a write of the application is never undone: such a document is read and encoded again. The last pass writes nothing: it verifies.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from termweave.catalog import audit, statistics_store
from termweave.catalog.application_fields import named_fields
from termweave.catalog.lineage import check_alike, predecessor, store_lineage
from termweave.engine.client.resolved_name import uuids_of
from termweave.errors import UsageError
from termweave.indexer.enrichment import enriched_mapping, index_passes
from termweave.indexer.enrichment.enrichment_run import EnrichmentRun, about, plan_first
from termweave.indexer.enrichment.index_passes import IndexPasses
from termweave.indexer.ledger import storage
from termweave.indexer.preparation.corpus_remarks import unreadable
from termweave.indexer.preparation.estimate import estimate_build
from termweave.support.messages import few

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.catalog.lineage import Lineage
    from termweave.corpora.index.source import IndexSource
    from termweave.engine import Engine
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress


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
    """The outcome of `enrich --plan`: how much an enrichment would write.

    Attributes:
        index: The concrete index.
        documents: Documents in it that can be read.
        to_write: Documents whose fields are missing or do not agree with their content.
        signals: Names of the signals.
        models: Output -> name of the model.
        seconds: Time to encode the documents on this machine under its present load; None: an earlier enrichment goes on, and no time is estimated.
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

    With `every` the index is read once and then watched: what the application has written since the beginning gets its fields, and so does
    an index that the name stands for later, until a KeyboardInterrupt, which ends the function in order. A run that was killed leaves nothing
    undone either: the next one finds what lacks its fields.

    Args:
        engine: The server of the index.
        source: The index, or an alias or a data stream of several, which are enriched alike.
        options: Models, signals, `patience` and `skip_bad` are used.
        progress: Called with (stage, done, total).
        close: Whether the index may be closed for a moment, which the signal learned needs.
        lexical: Text fields of the application that the signal lexical searches -> their weights; {}: those of title and text, or as before.
        every: Seconds between two looks for documents that the application wrote; None: the index is not watched.
        say: Called with a sentence about each document that the watch leaves out, and about what the name stands for.

    Raises:
        UsageError: Server, mapping or settings do not allow it; the message says what to do.
        RefusedDocuments: The server refused documents.
        VerificationFailed: The application changed documents as fast as they were enriched.
    """
    engine = engine.patient(options.patience)
    indices = enriched_mapping.whole_indices(source)
    with EnrichmentRun(engine, source, options, lexical, close, every is not None, progress, say) as run:
        if first := _first(source, options, lexical):
            index, lineage = first
            run.recipe = run.resume(lineage, index)
            run.notes.append(
                "Models and statistics are those of the first enrichment ('enrich --remove' begins anew)."
                if index in indices
                else f"{source.address.index!r} stood for {index!r} when it was enriched. Models, fields and statistics are those of that "
                "index (name a model, or other fields or signals, to begin anew)."
            )
            words = enriched_mapping.lexical(source, lexical, lineage.layout.prefix)
            if words is not None and (lexical or "lexical" not in lineage.signals):
                signals = {**lineage.signals, words.name: words.parameters()}
                run.recipe = replace(run.recipe, lineage=replace(lineage, signals=signals))
                run.notes.append(about(words))
        for index in indices:
            run.add(index)
        if every is not None:
            run.watch(every)
        elif {*uuids_of(engine, source.address.index)} != {*indices}:
            run.notes.append(f"{source.address.index!r} stands for other indices now. Run the command again for them.")
        done = [one.watch.passes for one in run.indices.values()]
        documents = sum(
            each.total.documents if every is None else enriched_mapping.count(engine, each.index, each.digest) for each in done
        )
    return Enriched(
        index=done[0].index if len(done) == 1 else source.address.index,
        documents=documents,
        written=run.written,
        conflicts=sum(each.total.conflicts for each in run.passes),
        signals=tuple(run.recipe.lineage.signals) if run.recipe else (),
        notes=(*run.notes, *(each for each in unreadable(run.left_out) if each not in run.notes)),
    )


def _first(source: IndexSource, options: BuildOptions, lexical: Mapping[str, float]) -> tuple[str, Lineage] | None:
    """Find the index whose models, fields and statistics an enrichment goes on with, and that index's lineage; None: the enrichment begins anew.

    The index is the last of the name's indices that is enriched, else the index that the name stood for before.

    Raises:
        UsageError: Indices of the name are enriched otherwise than the user asks for now, or otherwise than each other.
    """
    lineages = enriched_mapping.lineages(source)
    words = enriched_mapping.lexical(source, lexical) if lexical else None
    alike = {"lexical": words.parameters()} if words else {}  # all get these
    check_alike({index: replace(lineage, signals={**lineage.signals, **alike}) for index, lineage in lineages.items()})
    if lineages:
        index, lineage = [*lineages.items()][-1]
        _check_unchanged(source, lineage, options)
        return index, lineage
    earlier = predecessor(source.engine, source.address.index)
    with suppress(UsageError):  # with other fields or signals the new index is enriched anew
        if earlier is not None and not (options.weights or options.dense):
            _, lineage = earlier
            _check_unchanged(source, lineage, options)
            return earlier
    return None


def plan_enrichment(
    engine: Engine,
    source: IndexSource,
    options: BuildOptions,
    progress: BuildProgress = lambda *_: None,
    lexical: Mapping[str, float] = MappingProxyType({}),
) -> EnrichmentPlan:
    """Check everything that `enrich` checks, and return what `enrich` would write. Nothing is written.

    Raises:
        UsageError: Server, mapping or settings do not allow it; the message says what to do.
    """
    indices = enriched_mapping.whole_indices(source)
    name = indices[0] if len(indices) == 1 else source.address.index
    if (first := _first(source, options, lexical)) is not None:
        (_, lineage), to_write, documents = first, 0, 0
        for index in indices:
            one = source.of_index(index)
            layout = lineage.layout
            if index not in enriched_mapping.lineages(one):
                enriched_mapping.check_index(engine, one, index, tuple(lineage.signals))
                layout = enriched_mapping.with_object(lineage).layout
            stale, digest = partial(index_passes.stale, one, layout), enriched_mapping.digest_field(layout)
            counts = IndexPasses(engine, one, index, stale, digest).run(progress, write=False)
            documents, to_write = documents + counts.documents, to_write + counts.documents - counts.unchanged
            source.skipped.count += one.skipped.count
            source.skipped.kept += one.skipped.kept
        models = {output: model.name for output, model in lineage.models.items()}
        notes = (*unreadable(source.skipped), *([about(enriched_mapping.lexical(source, lexical))] if lexical else ()))
        return EnrichmentPlan(name, documents, to_write, tuple(lineage.signals), models, notes=notes)
    planned = plan_first(engine, source, options)
    estimate = estimate_build(source, engine.capabilities, planned.options, progress=progress)
    notes = (*estimate.warnings, *planned.notes, about(enriched_mapping.lexical(source, lexical)))
    if "learned" in planned.signals:
        notes += ("The index must be closed for about a second, for the analyzers of learned: add --yes.",)
    return EnrichmentPlan(name, source.total, source.total, planned.signals, estimate.models, estimate.encode_seconds, notes)


def remove(
    engine: Engine,
    source: IndexSource,
    progress: BuildProgress = lambda *_: None,
    *,
    close: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Remove an enrichment: its fields from all documents, its lineage and its statistics; returns the number of documents that were written.

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
    indices = enriched_mapping.whole_indices(source)
    written = 0
    stay: list[str] = []
    enriched = enriched_mapping.lineages(source)
    for index in indices:
        if lineage := enriched.get(index):
            with storage.lease(engine, index):
                removing_writes = partial(index_passes.removing_writes, set(lineage.source["enriched"].split()))
                passes = IndexPasses(engine, source.of_index(index), index, removing_writes)
                passes.repeat(progress, "have the fields")
                if lineage.statistics:
                    statistics_store.delete_unused(engine, index, lineage)
                store_lineage(engine, index, None)  # last: without it the command could not be repeated
            audit.write(engine, "remove fields", index, before=index, after=index, documents=passes.total.written)
            written += passes.total.written
        stay += enriched_mapping.remove_settings(engine, index, close=close)
    if not enriched and not stay:
        raise UsageError(f"{few(indices)!r} was not enriched.", "'termweave enrich' does that.")
    for sentence in dict.fromkeys(stay):
        say(sentence)
    return written


def _check_unchanged(source: IndexSource, lineage: Lineage, options: BuildOptions) -> None:
    """Check that the signals and fields that the user asks for are those of the first enrichment.

    Raises:
        UsageError: They are not; the message names the signals or fields of the first enrichment.
    """
    fields = named_fields(lineage)
    written = lineage.signals.keys() - {"lexical"}
    if options.signals and {*options.signals} - {"lexical"} != written:
        first, flags = f"the signals {', '.join(sorted(written))}", "--signals"
    elif fields is not None and fields != source.reading.fields:
        first, flags = f"the fields {', '.join(fields.named()) or 'of usual names'}", "--title-field and --text-field"
    else:
        return
    hint = f"Leave {flags} out, or remove what was written by 'termweave enrich {lineage.name} --remove' and enrich it anew."
    raise UsageError(f"{lineage.name!r} was enriched with {first}.", hint)
