"""A build: read the corpus, create the index, send the documents, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The first pass counts the statistics that term weights are based on, and enters every document in the ledger.
The second pass encodes and sends the documents that the ledger does not list as acknowledged, so a build that was killed continues
where it stopped: the same command goes on with the generation that an earlier one left unfinished.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from termweave.catalog import generations, statistics_store, typed_fields
from termweave.catalog.lineage import Lineage, read_lineage, store_lineage
from termweave.corpora.index.pages import discard_all
from termweave.dialect import dialect_of
from termweave.encoders.recorded_models import remember
from termweave.errors import EngineError
from termweave.indexer import rebuild_options
from termweave.indexer.build_plan import BuildPlan, plan
from termweave.indexer.generations import deletion, index_setup
from termweave.indexer.job import BuildTarget, Changes, IndexingResult, Job, PublicationCheck
from termweave.indexer.ledger import storage, unfinished_builds
from termweave.indexer.preparation import user_mapping
from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, length_warnings, read_corpus
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.verification import SAMPLE, Difference
from termweave.support import arguments

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.ledger.ledger import Ledger
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.pipeline.pipeline import Pipeline
    from termweave.records import Encoding


def build(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    progress: BuildProgress = lambda *_: None,
    gate: PublicationCheck | None = None,
    live: generations.LiveGeneration | None = None,
) -> IndexingResult:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: How to build.
        progress: Called with (stage, done, total or None).
        gate: Called with the index of the verified generation; returns why the generation must not be published, or "".
        live: The live generation, if the caller has read its lineage already.

    Raises:
        TermweaveError: Another build of the name is running, here or on another host.
        UsageError: The name, a signal or a model cannot be used.
        InputError: The source has an entry that cannot be read, or an id twice.
        RefusedDocuments: The server refused documents; the alias was not moved.
        VerificationFailed: What is stored is not what was sent; the alias was not moved.
    """
    return Build(engine, source, name, options, gate, live).run(progress)


def up_to_date(engine: Engine, source: Source, name: str, options: BuildOptions) -> str | None:
    """Return the index of the live generation if a build of this source with these options would make an equal one; None: a build is needed."""
    arguments.check(engine=engine, source=source, options=options)
    engine = engine.patient(options.patience)
    if (index := generations.live(engine, name)) is None:
        return None
    return index if read_lineage(engine, index).fingerprint == plan(source, engine.capabilities, options).fingerprint else None


class Build(Job):
    """A build of a new generation, or of a generation that an earlier command left unfinished."""

    def read(self, progress: BuildProgress) -> None:
        """Read the source into the ledger of a new generation, or resume an unfinished generation whose ledger lists the source already."""
        engine, name = self.engine, self.name
        if self.live is None or generations.live(engine, name) != self.live.index:  # another build may have published one since
            self.live = generations.find_live(engine, name)
        planned = plan(self.source, engine.capabilities, self.options)
        remember(planned.models.values())
        self.encoder, self.options = planned.encoder, planned.options
        self.source = in_passages(self.source, self.options.passages)
        before = self.live.index if self.live else None
        unfinished = unfinished_builds.resume(engine, name, self.source, planned, before)
        target = self.target = self._begin(planned, progress) if unfinished is None else self._resume(*unfinished)
        self._closing.callback(target.ledger.close)
        target.notes[:0], target.warnings[:0] = planned.notes, planned.warnings
        if self.live is not None and (other := rebuild_options.differences(self.live.lineage, planned)):
            target.notes.append(f"Differences from the live generation before this build: {other}.")

    def _begin(self, planned: BuildPlan, progress: BuildProgress) -> BuildTarget:
        """Read the source once, and create the empty index of a new generation; returns the generation, ready to be written."""
        engine, source, options, name = self.engine, self.source, self.options, self.name
        index = generations.new_index(name)
        ledger = storage.open_(engine, index)
        try:
            ledger.put("name", name)
            ledger.put("entry", source.ENTRY)
            ledger.put("trial", value=source.trial)  # it must not block other builds
            ledger.put("state", "surveying")  # if this process dies now, the next build deletes the generation
            corpus, sample = self._surveyed(planned, ledger, progress)
            layout = planned.layout(engine.capabilities, sample, corpus.statistics)
            own_fields = set(options.mapping.get("properties", {})) - set(layout.mapping({})["properties"])
            forms = corpus.metadata.types(declared := () if options.keep_mapping else own_fields)
            layout = replace(layout.typed(forms), extra=sorted(own_fields))
            spelling = dialect_of(engine.capabilities)
            mapping = user_mapping.merged_mapping(layout, options, spelling)
            corpus.notes.extend(corpus.metadata.notes(declared))
            cut = options.passages.parameters() if options.passages else {}
            passages = cut and {**cut, "count": ledger.total, "most": ledger.most_passages}
            origin = {**source.origin, "options": orjson.dumps(planned.stored).decode()}
            lineage = planned.lineage(engine, name, layout, corpus.statistics, origin)
            lineage = replace(lineage, fingerprint=planned.fingerprint, documents=ledger.documents, passages=passages)
            shards = {"index.number_of_shards": options.shards, **options.settings}
            settings = user_mapping.merged(layout.settings(spelling), shards)
            copies = 0 if options.loading else self.replicas()
            settings |= index_setup.LOADING if options.loading else {"index.number_of_replicas": copies}
            self.lease.check()
            index_setup.create(engine, index, mapping, lineage, settings, self.lease)
            if copies:  # a node may fail while documents are sent: that is what --no-loading is for
                index_setup.wait_for_copies(engine, index, "is filled")
            self.keep_statistics(index, corpus.statistics)
            ledger.put("lineage", lineage.as_meta())
            ledger.put("said", [corpus.notes, corpus.warnings])  # a build that resumes does not read the source for them
            ledger.put("state", "building")
        except (EngineError, KeyboardInterrupt):
            ledger.close()  # a snapshot of the source belongs to it; the next build takes that over and deletes this
            raise
        except BaseException:
            ledger.close()
            with suppress(EngineError):  # no build could resume this; if deleting fails, the next build does it
                deletion.remove_generation(engine, index)
            raise
        return BuildTarget(index, lineage, corpus.statistics, ledger, self.lease, corpus.notes, corpus.warnings)

    def _surveyed(self, planned: BuildPlan, ledger: Ledger, progress: BuildProgress) -> tuple[CorpusPass, Sequence[Encoding]]:
        """Read the source once, and encode a sample of its documents; returns what was counted, and the sample's encodings, or those that a source brings."""
        options, brought = self.options, self.source.encodings
        forms = {name: typed_fields.DECLARED[kind] for name, kind in options.types.items()}
        corpus = read_corpus(self.source, self.encoder, ledger, skip_bad=options.skip_bad, progress=progress, types=forms)
        if brought is not None:  # its notes and warnings are in the plan
            statistics = brought.statistics if "weights" in planned.models else None
            return replace(corpus, statistics=statistics, notes=[], warnings=[]), brought.sample
        texts = [document.content for document in corpus.sample]
        cut, passages = not options.keep_mapping, options.passages is not None
        corpus.warnings.extend(length_warnings(self.encoder, texts, passages=passages, cut=cut))
        return corpus, self.encoder.encode(texts, kind="document", statistics=corpus.statistics)

    def _resume(self, index: str, lineage: Lineage, ledger: Ledger) -> BuildTarget:
        """Continue a generation that an earlier command left unfinished."""
        with ledger.closed_on_error():
            index_setup.open_writer(self.engine, index, self.lease)
            statistics = statistics_store.load(self.engine, index, lineage)
            self.keep_statistics(index, statistics)
            noun = "passages" if lineage.passages else "documents"
            resumed = f"Resumed {index}: {ledger.acknowledged:,} of {ledger.total:,} {noun} were sent before."
            notes, warnings = ledger.get("said") or ([], [])
            return BuildTarget(index, lineage, statistics, ledger, self.lease, [resumed, *notes], warnings)

    def send(self, pipeline: Pipeline, progress: BuildProgress) -> Changes:
        """Send the documents that the ledger does not list as acknowledged; returns how many were sent, and a sample of ids."""
        return Changes(pipeline.run(progress), self.target.ledger.sample(SAMPLE))

    def finish_loading(self) -> None:
        """Restore the refresh interval and the replicas, which `BuildOptions.loading` has switched off."""
        refresh = self.options.settings.get("index.refresh_interval")
        index_setup.finish_loading(self.engine, self.target.index, refresh, self.replicas())

    def advise(self, difference: Difference) -> str:
        """Mark missing and altered documents as unsent, so that the same command sends them again, and return advice that says so."""
        self.target.ledger.mark_unsent([*difference.missing, *difference.altered])
        advice = "with --fresh" if difference.extra else "again, which sends the missing and altered documents"
        return f"This generation was not published. Run the same command {advice}."

    def rejected(self) -> None:
        """Mark the generation as incomplete: an earlier command whose gate refused the generation may have marked it as complete."""
        store_lineage(self.engine, self.target.index, self.target.lineage)
        self.target.ledger.put("state", "rejected")  # the same command tries again; a corrected source begins anew

    def remarks(self, changes: Changes) -> list[str]:
        """Return sentences about the sizes of what the generation stores."""
        del changes
        engine, index, layout = self.engine, self.target.index, self.target.layout
        return [*_stored_on_average(engine, index, layout), *user_mapping.sizes_of_hits(engine, index, layout, self.options)]

    def publish(self, after: Lineage, changes: Changes) -> None:
        """Publish the generation, and discard snapshots of source indices that stopped builds of this name have left."""
        super().publish(after, changes)
        discard_all(self.name)


def _stored_on_average(engine: Engine, index: str, layout: DocumentLayout) -> list[str]:
    """Return a sentence for each signal that can be counted: how much the signal stores for a document, on average."""
    counted = {signal.name: signal.counted for signal in layout.signals if signal.counted}
    if not counted:
        return []
    aggregations = {name: {"avg": {"field": field}} for name, (field, _) in counted.items()}
    answer = engine.request("POST", f"/{index}/_search", body={"size": 0, "aggs": aggregations})["aggregations"]
    return [f"{name}: {answer[name]['value'] or 0:.1f} {noun} a document on average." for name, (_, noun) in counted.items()]
