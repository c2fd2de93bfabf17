"""Enrichment: write the fields of the signals into an existing index of another application, beside its own fields.

The state is in the index alone. Every document is compared by two digests that stand beside its fields: one of its title, text and
other fields, one of the encoding. What differs, because the application changed it or because an earlier command was stopped, is encoded
and written; what agrees is left alone. Each write names the sequence number at which the document was read (``if_seq_no``), so
a write of the application is never undone: such a document is read and encoded again. The last pass writes nothing: it verifies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

import orjson

from termweave.catalog import audit, generations, statistics_store
from termweave.catalog.lineage import Lineage, check_alike, read_lineage, store_lineage
from termweave.corpora.sources import Skips
from termweave.encoders.recorded_models import encoder_of, remember
from termweave.engine.client.connection import quote
from termweave.engine.client.resolved_name import uuids_of
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.indexer.enrichment import enriched_mapping, index_passes
from termweave.indexer.enrichment.index_passes import IndexPasses, Watch
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.ledger import temporary_ledger
from termweave.indexer.preparation.corpus_pass import BuildProgress, read_corpus, unreadable
from termweave.indexer.preparation.estimate import estimate_build
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.corpora.index.source import IndexSource
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.statistics import CorpusStatistics

#: The stage of the progress while the application's writes are awaited.
_STAGE = "Watching"


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


@dataclass(frozen=True)
class Recipe:
    """The models, statistics and fields that each index of the name gets.

    Attributes:
        lineage: The lineage of an index that is enriched already, or the lineage for the first index to be enriched.
        encoder: The models.
        statistics: The collection statistics that term weights depend on; None: there is no weights model.
    """

    lineage: Lineage
    encoder: TextEncoder
    statistics: CorpusStatistics | None


@dataclass
class IndexInRun:
    """One index that the run has enriched. Closing `end` gives the lease of the index back and writes a line of the audit trail."""

    watch: Watch
    lease: Lease
    end: ExitStack


@dataclass
class EnrichmentRun:
    """The enrichment of a name.

    Attributes:
        engine: The server.
        source: Reads the indices that the name stood for when it was resolved last.
        options: Models, signals and `skip_bad` are used.
        lexical: Text fields that the signal lexical searches -> their weights; {}: those of title and text.
        may_close: Whether an index may be closed for a moment, which the signal learned needs.
        every: Seconds between two looks of the watch that follows; None: no watch follows.
        progress: Called with (stage, done, total, detail).
        say: Called with each sentence for the user.
        recipe: What an index gets that is not enriched yet; None: that is not decided yet.
        indices: UUID of each index -> the index.
        passes: The passes over every index that was enriched.
        left_out: Documents that cannot be read.
        notes: What a user should know.
    """

    engine: Engine
    source: IndexSource
    options: BuildOptions
    lexical: Mapping[str, float]
    may_close: bool
    every: float | None
    progress: BuildProgress
    say: Callable[[str], None]
    recipe: Recipe | None = None
    indices: dict[str, IndexInRun] = field(default_factory=dict)
    passes: list[IndexPasses] = field(default_factory=list)
    left_out: Skips = field(default_factory=Skips)
    notes: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Give back all leases, and write the lines of the audit trail."""
        for one in self.indices.values():
            one.end.close()

    def begin(self) -> Recipe:
        """Count the statistics, check that the indices can take the fields, and return the recipe: what each index gets."""
        source, options = self.source, self.options
        planned = enriched_mapping.plan_first(self.engine, source, options)
        words = enriched_mapping.lexical(source, self.lexical)
        remember(planned.encoder.models.values())
        with temporary_ledger() as ledger:
            corpus = read_corpus(source, planned.encoder, ledger, skip_bad=options.skip_bad, progress=self.progress)
        sample = planned.encoder.encode([each.content for each in corpus.sample], kind="document", statistics=corpus.statistics)
        written = planned.layout(self.engine.capabilities, sample, corpus.statistics)
        inside = [replace(signal, prefix=f"{enriched_mapping.OBJECT}.") for signal in written.signals]
        layout = replace(written, signals=[*([words] if words else []), *inside])
        fields = orjson.dumps(asdict(source.reading.fields)).decode()  # for later commands
        origin = {"name": source.name, "fingerprint": "", "enriched": enriched_mapping.OBJECT, "fields": fields}
        self.notes += [*planned.notes, *corpus.notes, enriched_mapping.about(words)]
        lineage = planned.lineage(self.engine, max(source.mappings), layout, corpus.statistics, origin)
        return Recipe(lineage, planned.encoder, corpus.statistics)

    def resume(self, lineage: Lineage, index: str) -> Recipe:
        """Return the recipe with the models and statistics of an earlier enrichment, to go on with it."""
        encoder = encoder_of(lineage, index, {"weights_otherwise": self.options.weights, "dense_otherwise": self.options.dense})
        remember(encoder.models.values())
        return Recipe(lineage, encoder, statistics_store.load(self.engine, index, lineage))

    def add(self, index: str) -> None:
        """Enrich an index that the name stands for.

        Raises:
            UsageError: The mapping or settings of the index do not allow it, or the index is enriched otherwise than the others.
            TermweaveError: Another run has the lease of the index; or as `IndexPasses.repeat`.
        """
        one, watched = self.source.of_index(index), self.every is not None
        with ExitStack() as end:
            lease = end.enter_context(storage.lease(self.engine, index))
            before = enriched_mapping.lineages(one).get(index)
            if before is not None and self.recipe and (words := self.recipe.lineage.signals.get("lexical")):
                before = replace(before, signals={**before.signals, "lexical": words})  # nothing is written for it
            if before is not None and (self.recipe is None or before.differences(self.recipe.lineage)):
                check_alike(enriched_mapping.lineages(self.source))
                self.recipe = self.resume(before, index)
            recipe = self.recipe = self.recipe or self.begin()
            lineage = self._give_fields(one, index, before, recipe)
            stale_writes = partial(index_passes.stale_writes, one, lineage.layout, recipe.encoder, recipe.statistics)
            passes = IndexPasses(self.engine, one, index, stale_writes, enriched_mapping.digest_field(lineage.layout))
            self.passes.append(passes)
            end.callback(self._log, passes)
            seen = index_passes.checkpoints(self.engine, index) if watched else {}
            first = passes.repeat(self.progress, once=watched)  # the watch goes on where this pass began
            if before is not None:
                share = f"{first.unchanged:,} of {counted(first.documents, 'document')}"
                self.notes.append(f"{share} had the fields already, with the same content: they were not written again.")
            now = read_lineage(self.engine, index)  # a profile may have been adopted meanwhile
            lineage = replace(
                lineage, complete=True, documents=passes.total.documents, profiles=now.profiles, profile=now.profile
            )
            store_lineage(self.engine, index, lineage)
            self.recipe = replace(recipe, lineage=lineage)
            uuid = uuids_of(self.engine, index).get(index, "")
            self.indices[uuid] = IndexInRun(Watch(passes, seen), lease, end.pop_all())
            self._name_left_out(one)

    def _give_fields(self, one: IndexSource, index: str, before: Lineage | None, recipe: Recipe) -> Lineage:
        """Give an index the mapping, the statistics and the lineage of the recipe; returns the lineage.

        Indices of one name share their statistics. An index that the name stands for alone has a copy, because the owner may delete the earlier index.
        """
        created = generations.creation_time(self.engine, index)
        lineage = before or replace(recipe.lineage, created=created, complete=False, documents=0, name=self.source.address.index)
        if before is None:
            lineage = enriched_mapping.with_object(lineage)
            if any(not each.layout.prefix for each in enriched_mapping.lineages(self.source).values()):
                raise UsageError(
                    f"{index!r} cannot be searched together with indices that an earlier version enriched, because their fields have other names.",
                    f"Run 'termweave enrich {lineage.name} --remove', and enrich all of them anew.",
                )
            for each in reversed(self.passes):  # what was adopted since
                with suppress(TermweaveError):
                    now = read_lineage(self.engine, each.index)
                    lineage = replace(lineage, profiles=now.profiles, profile=now.profile)
                    break
            enriched_mapping.check_index(self.engine, one, index, tuple(lineage.signals))
            fields = enriched_mapping.fields_of(self.engine, one, index, lineage.layout)
            enriched_mapping.add_settings(self.engine, index, lineage.layout, close=self.may_close)
            # Before statistics and lineage: a refusal leaves nothing behind.
            properties = {enriched_mapping.OBJECT: {"properties": fields}}
            self.engine.request("PUT", f"/{quote(index)}/_mapping", body={"properties": properties})
        if recipe.statistics is not None:
            home = statistics_store.home(index, lineage)
            if home not in self.source.mappings or not statistics_store.is_complete(self.engine, home):
                home = index
                settings = {"index.auto_expand_replicas": "0-1", **({"index.hidden": True} if index.startswith(".") else {})}
                statistics_store.save(self.engine, index, recipe.statistics, settings)
            lineage = replace(lineage, statistics={**lineage.statistics, "index": home})
        store_lineage(self.engine, index, lineage)
        return lineage

    def _log(self, passes: IndexPasses) -> None:
        index, written = passes.index, passes.total.written
        if written:
            audit.write(self.engine, "enrich", index, before=index, after=index, documents=written)

    def _name_left_out(self, one: IndexSource) -> None:
        for skipped in one.skipped:
            if skipped not in self.left_out.kept:
                self.left_out.add(skipped)
                if self.every is not None:
                    self.say(f"Left out: {skipped}.")

    @property
    def written(self) -> int:
        """Number of documents that all passes wrote."""
        return sum(each.total.written for each in self.passes)

    def watch(self, every: float) -> None:
        """Enrich the documents that the application writes, and each index that the name stands for later, until a KeyboardInterrupt.

        Args:
            every: Seconds between two looks.

        Raises:
            TermweaveError: A lease was lost, or the server is away for longer than the engine is patient.
        """
        name, refused = self.source.address.index, ""
        self.say(f"{name} is enriched and watched every {every:g} s. Ctrl-C ends the watch.")
        self.progress(_STAGE, self.written, None)
        with suppress(KeyboardInterrupt):
            while True:
                now = uuids_of(self.engine, name)
                if {*now.values()} != {*self.indices}:
                    refused = self._follow(now, refused)
                for uuid, one in list(self.indices.items()):
                    one.lease.check()
                    try:
                        if (counts := one.watch.look()) and counts.written:
                            self.progress(_STAGE, self.written, None, f"last written {time.strftime('%H:%M:%S')}")
                    except (InputError, EngineResponseError):
                        if uuids_of(self.engine, one.watch.passes.index).get(one.watch.passes.index) == uuid:
                            raise  # else it was deleted meanwhile
                    self._name_left_out(one.watch.passes.source)
                time.sleep(every)

    def _follow(self, now: Mapping[str, str], refused: str) -> str:
        """Enrich the indices that the name stands for now; returns the problem that keeps an index from being enriched, or "".

        Args:
            now: Index -> UUID of the indices that the name stands for.
            refused: The problem that the look before returned, which is not said again.
        """
        name, earlier = self.source.address.index, {one.watch.passes.index for one in self.indices.values()}
        for uuid in self.indices.keys() - now.values():
            self.indices.pop(uuid).end.close()
        problem = "" if now else f"There is no index {name!r} now."
        try:
            for index in [index for index, uuid in now.items() if uuid not in self.indices]:
                self.source = self.source.of_index(name)
                enriched_mapping.whole_indices(self.source)
                if not refused:
                    enriched = index in enriched_mapping.lineages(self.source)
                    fields = "keeps its fields" if enriched else "gets the models, fields and signals of the first one"
                    again = "was deleted and made again, and " if index in earlier else ""
                    self.say(f"{name!r} stands for {index!r} now. The index {again}{fields}.")
                self.add(index)
                self.say(f"{index!r} is enriched and watched.")
        except TermweaveError as error:
            gone = isinstance(error, EngineResponseError) and error.status == HTTPStatus.NOT_FOUND
            if not gone and type(error) not in {UsageError, InputError, TermweaveError}:  # the last: another run has its lease
                raise
            problem = f"{error.message} {error.hint}".strip()
        if problem and problem != refused:
            self.say(f"{problem} The watch waits until it can go on.")
        return problem


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
    with closing(EnrichmentRun(engine, source, options, lexical, close, every, progress, say)) as run:
        if first := enriched_mapping.find_earlier(source, options, lexical):
            index, lineage = first
            run.recipe = run.resume(lineage, index)
            run.notes.append(
                "Models and statistics are those of the first enrichment; to begin anew, add --remove first."
                if index in indices
                else f"{source.address.index!r} stood for {index!r} when it was enriched. Models, fields and statistics are those of {index!r}; "
                "to begin anew, name a model, other fields or other signals."
            )
            words = enriched_mapping.lexical(source, lexical, lineage.layout.prefix)
            if words is not None and (lexical or "lexical" not in lineage.signals):
                signals = {**lineage.signals, words.name: words.parameters()}
                run.recipe = replace(run.recipe, lineage=replace(lineage, signals=signals))
                run.notes.append(enriched_mapping.about(words))
        for index in indices:
            run.add(index)
        if every is not None:
            run.watch(every)
        elif {*uuids_of(engine, source.address.index)} != {*indices}:
            run.notes.append(f"{source.address.index!r} stands for other indices now. Run the command again to enrich them.")
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
    first = enriched_mapping.find_earlier(source, options, lexical)
    words = enriched_mapping.about(enriched_mapping.lexical(source, lexical))
    if first is not None:
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
        notes = (*unreadable(source.skipped), *([words] if lexical else ()))
        return EnrichmentPlan(name, documents, to_write, tuple(lineage.signals), models, notes=notes)
    planned = enriched_mapping.plan_first(engine, source, options)
    estimate = estimate_build(source, engine.capabilities, planned.options, progress=progress)
    notes = (*estimate.warnings, *planned.notes, words)
    if "learned" in planned.signals:
        notes += ("For the analyzers of the signal learned the index must be closed for about a second: add --yes.",)
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
                passes.repeat(progress)
                if lineage.statistics:
                    statistics_store.delete_unused(engine, index, lineage)
                store_lineage(engine, index, None)  # last: without it the command could not be repeated
            audit.write(engine, "remove fields", index, before=index, after=index, documents=passes.total.written)
            written += passes.total.written
        stay += enriched_mapping.remove_settings(engine, index, close=close)
    if not enriched and not stay:
        raise UsageError(f"{few(indices)} was not enriched.", "There is nothing to remove.")
    for sentence in dict.fromkeys(stay):
        say(sentence)
    return written
