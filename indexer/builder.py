"""A build: read the corpus, create the index, send the documents, verify, publish.

``reader -> Document -> encoder -> Encoding -> signals -> NDJSON -> _bulk -> ledger -> refresh -> verify -> alias``

The source is read twice. The first pass counts the statistics that term weights are based on, and enters every document in the ledger.
The second pass encodes and sends the documents that the ledger does not list as acknowledged, so a build that was killed continues
where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.catalog import generations, lineage
from termweave.corpora.index.pages import discard_all
from termweave.encoders.recorded_models import remember
from termweave.indexer import build_target, rebuild_options
from termweave.indexer.build_plan import plan
from termweave.indexer.generations import index_setup
from termweave.indexer.job import Changes, Job
from termweave.indexer.preparation import kept_mapping
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.verification import SAMPLE
from termweave.support import arguments

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.job import IndexingResult, PublicationCheck
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.pipeline.pipeline import Pipeline
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.verification import Difference


def build(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    progress: BuildProgress = lambda *_: None,
    gate: PublicationCheck | None = None,
    live: LiveGeneration | None = None,
) -> IndexingResult:
    """Build a generation of `name` from `source`, verify it and point the alias at it.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: How to build.
        progress: Called with (stage, done, total or None).
        gate: Called with the verified generation; returns why it must not be published, or "".
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
    """The live generation of `name`, if a build of this source with these options would only make it again; else None."""
    arguments.check(engine=engine, source=source, options=options)
    engine = engine.patient(options.patience)
    index = generations.live(engine, name)
    if index is None:
        return None
    same = lineage.read(engine, index).fingerprint == plan(source, engine.capabilities, options).fingerprint
    return index if same else None


class Build(Job):
    """A build of a new generation, or of one that an earlier command left unfinished. Arguments as for `build`."""

    def read(self, progress: BuildProgress) -> None:
        """Read the source into the ledger of a new generation, unless an unfinished one has it."""
        engine = self.engine
        if (
            self.live is None or generations.live(engine, self.name) != self.live.index
        ):  # another build may have published one since
            self.live = generations.find_live(engine, self.name)
        planned = plan(self.source, engine.capabilities, self.options)
        remember(planned.models.values())
        self.encoder, self.options = planned.encoder, planned.options
        self.source = in_passages(self.source, self.options.passages)
        target = self.target = build_target.open_target(engine, self.source, self.lease, planned, self.live, progress)
        self._held.callback(target.ledger.close)
        target.notes[:0], target.warnings[:0] = planned.notes, planned.warnings
        if self.live is not None and (other := rebuild_options.differences(self.live.lineage, planned)):
            target.notes.append(f"Unlike the live generation before it: {other}.")

    def send(self, pipeline: Pipeline, progress: BuildProgress) -> Changes:
        """Send the documents that the ledger does not list as acknowledged."""
        return Changes(pipeline.run(progress), self.target.ledger.sample(SAMPLE))

    def finish_loading(self) -> None:
        """Restore what `BuildOptions.loading` has switched off."""
        refresh = self.options.settings.get("index.refresh_interval")
        index_setup.finish_loading(self.engine, self.target.index, refresh, build_target.replicas(self.engine, self.options))

    def advise(self, difference: Difference) -> str:
        """Mark what is missing or altered as unsent, so that the same command sends it again, and say so."""
        self.target.ledger.mark_unsent([*difference.missing, *difference.altered])
        advice = "with --fresh" if difference.extra else "again: it sends what is missing or altered"
        return f"It was not published. Run the same command {advice}."

    def rejected(self) -> None:
        """Mark the generation as incomplete: it may have been whole when its gate refused it."""
        lineage.write(self.engine, self.target.index, self.target.lineage)
        self.target.ledger.put("state", "rejected")  # the same command tries again; a corrected source begins anew

    def remarks(self, changes: Changes) -> list[str]:
        """Sentences about what is stored."""
        del changes
        index, layout = self.target.index, self.target.layout
        stored = build_target.stored_on_average(self.engine, index, layout)
        return [*stored, *kept_mapping.sizes_of_hits(self.engine, index, layout, self.options)]

    def publish(self, after: Lineage, changes: Changes) -> None:
        """Publish the generation, and discard the snapshots of builds from other indices, which were stopped."""
        super().publish(after, changes)
        discard_all(self.name)
