"""An update: only new and changed documents are encoded and sent, to the live generation or to a copy of it.

The source is read, and the digests of its documents are compared with those of the generation. If too much would be deleted, the update
stops here, and nothing has changed (`update_plan`). Documents are encoded with the statistics that the generation has, so that all its
weights have one scale; only a build counts them anew. An update may be stopped at any time: the same command compares again and continues.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.catalog import audit, generations, statistics_store
from termweave.catalog.lineage import CHANGING, Lineage, ModelLineage, read_lineage
from termweave.encoders.recorded_models import encoder_of, remember
from termweave.errors import EngineError, UsageError
from termweave.indexer import rebuild_options
from termweave.indexer.generations import copy as generation_copy
from termweave.indexer.generations import index_setup, publication
from termweave.indexer.generations.deletion import PAGE, remove
from termweave.indexer.job import BuildTarget, Changes, IndexingResult, Job, PublicationCheck
from termweave.indexer.ledger import diff, storage, unfinished_builds
from termweave.indexer.ledger.ledger import Ledger, readable_errors, temporary_file
from termweave.indexer.options import BuildOptions, Window
from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass, blocks, drift_after_update, read_corpus
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.indexer.preparation.passages import in_passages
from termweave.indexer.update_plan import DEFAULT_MODE, LARGE_DELETION, LargeDeletion, UpdateMode, UpdatePlan
from termweave.indexer.verification import SAMPLE, Difference, verify
from termweave.support.batching import in_parts
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.pipeline.pipeline import Pipeline

_IN_PLACE = "The live generation itself was changed, which 'termweave rollback' does not undo. With --new a copy is changed, and rollback undoes it."
#: The warning of an update of an index that an earlier version built with --neighbours.
_WITHOUT_NEIGHBOURS = (
    "This index was built with --neighbours, which this version does not have: the documents that were sent now have their own words alone. "
    "Build again without --update, so that all documents are weighed alike."
)


def update(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    mode: UpdateMode = DEFAULT_MODE,
    progress: BuildProgress = lambda *_: None,
    gate: PublicationCheck | None = None,
) -> IndexingResult:
    """Bring an index up to date with `source`: its live generation, or a copy that is then published in its place.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: Only the models, `workers`, `patience`, `allow_refused` and `skip_bad` are used; everything else stays as it is in the
            generation. Models that `mode.options` does not name are used where this host does not have those of the generation.
        mode: How the update changes the index.
        progress: Called with (stage, done, total or None).
        gate: Called with the verified copy; returns why it must not be published, or "". It needs `mode.new`.

    Raises:
        LargeDeletion: The update would delete a larger share of the documents than `mode.allow_deletions`.
        UsageError: No generation is live, a gate was given without `mode.new`, or an option that was given has another value in the generation.
        EngineError: The alias was moved to another generation during an update in place.
        TermweaveError: As `build`.
    """
    return Update(engine, source, name, options, gate, mode=mode).run(progress)


def plan_update(
    engine: Engine,
    source: Source,
    name: str,
    options: BuildOptions,
    mode: UpdateMode = DEFAULT_MODE,
    progress: BuildProgress = lambda *_: None,
) -> UpdatePlan:
    """Compare a source with the live generation of `name`, as an update does, and change nothing. No model is loaded.

    Args:
        engine: The server.
        source: The corpus.
        name: The alias.
        options: Only `skip_bad` and the options named in `mode.options` matter.
        mode: How the update would change the index.
        progress: Called with (stage, done, total or None).

    Raises:
        UsageError: No generation is live, or an option that was given has another value in the live generation.
        TermweaveError: The source cannot be read, or the server cannot be reached.
    """
    return Update(engine, source, name, options, mode=mode).plan(progress)


@dataclass
class Update(Job):
    """An update of the live generation, or of a copy of it.

    Attributes:
        mode: How the update changes the index.
    """

    live: generations.LiveGeneration = field(init=False)
    mode: UpdateMode = field(default=DEFAULT_MODE, kw_only=True)

    def __post_init__(self) -> None:
        """Check the arguments; no request is sent."""
        super().__post_init__()
        advice = "Update from the corpus itself, or leave --update out: a build from the folder runs no model."
        self.source.refuse_encodings("an update weighs documents with the statistics of the live generation", advice)
        if self.gate is not None and not self.mode.new:
            hint = "Add --new, or remove --require."
            raise UsageError("A gate (--require) needs a new generation: searches see changes of the live one at once.", hint)

    def read(self, progress: BuildProgress) -> None:
        """Read the source into a ledger of its own, and count what would be deleted."""
        options, mode, live = self.options, self.mode, self.find()
        models = {
            output if {output, "model"} & set(mode.options) else f"{output}_otherwise": model
            for output, model in (("weights", options.weights), ("dense", options.dense))
        }
        self.encoder = encoder_of(live.lineage, self.name, models, new_query=options.dense_query)
        remember(self.encoder.models.values())
        self._statistics = statistics_store.load(self.engine, live.index, live.lineage)
        self.survey(self.encoder if self._statistics else None, progress)
        if mode.delete_missing:
            deletion = self.admit(self.compare())
            self.large = None if deletion.allowed else deletion

    def plan(self, progress: BuildProgress) -> UpdatePlan:
        """Compare the source with the live generation, and change nothing. No model is loaded, and no lock is taken."""
        with self._closing:
            live, corpus = self.find(), self.survey(None, progress)
            counts = self.compare()
        deletion = self.admit(counts)
        return UpdatePlan(
            name=self.name,
            index=live.index,
            documents=counts.stored,
            counts=counts,
            deletions=deletion.deletions,
            share=deletion.share,
            allowed=deletion.allowed,
            new=self.mode.new,
            notes=tuple(corpus.notes),
            warnings=tuple(corpus.warnings),
        )

    def find(self) -> generations.LiveGeneration:
        """Find the live generation, and check that it can be updated from the source.

        Raises:
            UsageError: No generation is live; an option that was given has another value there; or the generation keeps the mapping of its
                source (--keep-mapping), and the source was read without all fields of its documents.
        """
        engine, source, name = self.engine, self.source, self.name
        live = generations.find_live(engine, name)
        if live is None:
            hint = f"Build {name} first: run the same command without --update."
            raise UsageError(f"There is no index {name!r} to update.", hint)
        rebuild_options.refuse_other(engine, live, self.options, self.mode.options)
        if "kept" in live.lineage.source and not (source.index and source.index.reading.index.whole):
            message = f"{name!r} was built with --keep-mapping, and documents without their old fields cannot be added to it."
            raise UsageError(message, f"Add --keep-mapping, and name as SOURCE the index that {name} was built from.")
        self.live = live
        return live

    def survey(self, encoder: TextEncoder | None, progress: BuildProgress) -> CorpusPass:
        """Read the source once and enter its documents in a ledger of their own.

        If the source gives only changed documents, the ledger lists all other documents as the live generation holds them.

        Args:
            encoder: The encoder whose analysis counts the statistics; None: no statistics are counted.
            progress: Called with (stage, done, total or None).
        """
        live = self.live
        source = self.source = in_passages(self.source, Window.from_lineage(live.lineage.passages))
        path = self._path = self._closing.enter_context(temporary_file())
        read = partial(read_corpus, source, skip_bad=self.options.skip_bad, progress=progress, types=live.lineage.layout.forms)
        if (identities := source.identities()) is None:
            with Ledger(path) as ledger:
                corpus = self._corpus = read(encoder, ledger)
            return corpus
        with storage.snapshot(self.engine, live.index, path) as ledger:
            diff.adopt(self.engine, live.index, ledger, live.lineage.layout)
            unknown, anything = _forget_missing(path, identities), False
            for block in blocks(source.documents()):
                changed = {document.source_id for document in block}
                ledger.forget(changed)
                unknown -= changed
                anything = True
            corpus = self._corpus = read(None, ledger) if anything else CorpusPass(None, [], [], [], TypeInference())
            if (lacking := len(unknown) - source.skipped.count) > 0:
                corpus.warnings.append(
                    f"{self.name} lacks {counted(lacking, 'document')} of {source.name} that did not change, so that --since does not read "
                    "them. Update once without --since."
                )
            return corpus

    def compare(self) -> diff.ChangeCounts:
        """Count the changes between the source and what the live generation stores. The generation's own ledger stays as it is."""
        live = self.live
        with storage.snapshot(self.engine, live.index, self._path.with_name("stored.sqlite")) as ledger:
            diff.adopt(self.engine, live.index, ledger, live.lineage.layout)
            with diff.LedgerDiff(ledger.path, self._path) as difference:
                return difference.counts

    def admit(self, counts: diff.ChangeCounts) -> LargeDeletion:
        """Let an update with a large deletion change a copy of the live generation; returns the error with which to refuse it unless `allowed` is true."""
        mode = self.mode
        deletions = counts.gone if mode.delete_missing and not self.source.skipped else 0
        self.mode = replace(mode, new=mode.new or deletions > LARGE_DELETION * counts.stored)
        return LargeDeletion(self.name, deletions, counts.stored, mode.allow_deletions)

    def open(self, progress: BuildProgress) -> BuildTarget:
        """Open the live generation, or a copy of it, for writing."""
        engine, live = self.engine, self.live
        self._now = generations.creation_time(engine, self.name)
        index, ledger = self._copied(progress) if self.mode.new else (live.index, storage.open_(engine, live.index))
        with ledger.closed_on_error():
            lineage = live.lineage
            if self.mode.new:  # an earlier command may have begun the copy, and begun to change it
                begun = read_lineage(engine, index)
                lineage = replace(lineage, created=begun.created, fingerprint=begun.fingerprint, complete=False)
            else:
                ledger.put("name", lineage.name)
                ledger.put("state", "updating")
            self.lease.check()
            index_setup.open_writer(engine, index, self.lease)
            self.keep_statistics(index, self._statistics)
            ledger.put("entry", self.source.ENTRY)
            self._origin = self.source.origin
            return BuildTarget(index, lineage, self._statistics, ledger, self.lease, [], [])

    def _copied(self, progress: BuildProgress) -> tuple[str, Ledger]:
        """Copy the live generation, and return the copy and its ledger. A copy that an earlier command began for the same source is finished."""
        engine, live = self.engine, self.live
        generation_copy.require_reindex(engine)
        base = [live.index, live.lineage.updated, self.source.fingerprint]
        index, ledger = unfinished_builds.copy_to_finish(engine, live.lineage.name, base) or self._begin_copy(base)
        with ledger.closed_on_error():
            if not ledger.get("copied"):
                generation_copy.run(engine, live.index, index, progress)
                ledger.put("copied", value=True)
            return index, ledger

    def _begin_copy(self, base: list[str]) -> tuple[str, Ledger]:
        """Create an empty copy of the live generation and its ledger.

        Args:
            base: What changes of the copy are based on: the live generation, the time of its last update, and the fingerprint of the source.
        """
        engine, live, name = self.engine, self.live, self.live.lineage.name  # not that of an alias that somebody added
        index = generations.new_index(name)
        with storage.snapshot(engine, live.index, storage.file_of(engine, index)).closed_on_error() as ledger:
            lineage = replace(live.lineage, created=self._now, complete=False)
            for key, value in {"name": name, "base": base, "lineage": lineage.as_meta(), "state": "copying"}.items():
                ledger.put(key, value)
            settings = index_setup.create_like(engine, index, live.index, lineage)
            ledger.put("settings", settings)
            if self._statistics is not None:
                replicas = {"index.number_of_replicas": settings["number_of_replicas"]}
                statistics_store.save(engine, index, self._statistics, replicas)
            return index, ledger

    def send(self, pipeline: Pipeline, progress: BuildProgress) -> Changes:
        """Compare the source with the generation, send new and changed documents, and delete outdated passages and, if asked for, missing documents."""
        engine, corpus, mode, target, ledger = self.engine, self._corpus, self.mode, self.target, self.target.ledger
        target.notes += [*self._adopt_stored(), *corpus.notes]
        target.notes += corpus.metadata.against(target.lineage.types, target.lineage.fields)
        target.warnings += [*corpus.warnings, *drift_after_update(target.statistics, corpus.statistics)]
        with diff.LedgerDiff(ledger.path, self._path) as difference:
            difference.enter()
            counts = difference.counts
            if counts.new or counts.changed or (mode.delete_missing and counts.gone):
                publication.write_lineage(engine, target.index, replace(target.lineage, fingerprint=CHANGING), None)
            sent = pipeline.run(progress)
            if sent and target.lineage.neighbours:
                target.warnings.append(_WITHOUT_NEIGHBOURS)
            difference.keep_refused()
            outdated = remove(engine, target.index, self.lease, ledger, difference.stale(gone=False))
            deleted = self._delete_missing(difference) if mode.delete_missing else 0
            sample = {*difference.sample(SAMPLE), *(ledger.sample(SAMPLE) if mode.new else ())}
            return Changes(sent, sorted(sample), difference.settled(), deleted, outdated)

    def _adopt_stored(self) -> list[str]:
        """Correct the ledger so that it lists what the index holds; returns a sentence about the corrections, [] if there were none."""
        index, ledger = self.target.index, self.target.ledger
        without_ledger = not ledger.total
        if not (count := diff.adopt(self.engine, index, ledger, self.target.layout)):
            return []
        documents = counted(count, "document was", "documents were")
        if without_ledger:
            taken = f"This host has no ledger of {index}, the record of what was sent: {documents} taken as stored, by the digests in the index"
            return [f"{taken} ('termweave verify NAME --deep' reads them back)."]
        cause = "(an update from another host, an interrupted update, or damage)"
        back = "They were read back; those that do not agree with their own digests count as changed."
        return [f"{documents} not stored as this host's ledger said {cause}. {back}"]

    def _delete_missing(self, difference: diff.LedgerDiff) -> int:
        """Delete documents that the source does not have, and stored entries that belong to no document; returns how many were deleted."""
        engine, target, skipped = self.engine, self.target, self.source.skipped
        deleted = difference.counts.gone
        if deleted and skipped:  # an entry that cannot be read may be one of them
            gone, unread = counted(deleted, "document"), counted(skipped.count, "entry", "entries")
            target.warnings.append(
                f"Not deleted: {gone} that the source does not have, because {unread} of the source could not be read and may be among them. "
                "Correct the source and update again, or name what to delete: 'termweave delete NAME --ids FILE'."
            )
            deleted = 0
        else:
            remove(engine, target.index, self.lease, target.ledger, difference.stale(gone=True))
        foreign = verify(engine, target.index, target.ledger, lineage=target.lineage).extra
        return deleted + remove(engine, target.index, self.lease, None, in_parts(foreign, PAGE))

    def finish_loading(self) -> None:
        """Give a copy the refresh interval and the replicas of the live generation."""
        if self.mode.new:
            settings = self.target.ledger.get("settings")
            copies = int(settings["number_of_replicas"])
            index_setup.finish_loading(self.engine, self.target.index, settings["refresh_interval"], copies)

    def advise(self, difference: Difference) -> str:
        """Return advice for an index that differs from its ledger after an update."""
        ids = [repr(identity) for identity in (*difference.extra, *difference.altered)]
        if not ids:
            return "Run the same command again, which sends the missing documents."
        return (
            f"Stored, but not in the source, or damaged: {few(ids)}. Another program, or an update from another host, may have written them: look "
            f"first, with 'termweave verify {self.name} SOURCE'. 'termweave delete {self.name} --id ID' deletes one."
        )

    def rejected(self) -> None:
        """Do nothing, so that the generation stays marked as changing: its content is not what its fingerprint says."""

    def remarks(self, changes: Changes) -> list[str]:
        """Return a sentence that `rollback` does not undo a change in place; []: a copy was changed, or nothing."""
        return [] if self.mode.new or not (changes.sent or changes.deleted) else [_IN_PLACE]

    def lineage(self, changes: Changes) -> Lineage:
        """Return the lineage after the update. A changed generation has no fingerprint, because no build of its source would make an equal one."""
        before, counts, after = self.target.lineage, changes.counts, super().lineage(changes)
        if (counts and (counts.new or counts.changed)) or changes.deleted or changes.outdated or before.fingerprint == CHANGING:
            options = {name: text for name, text in before.source.items() if name == "options"}
            after = replace(after, source=self._origin | options, fingerprint="", updated=self._now)
        models = {output: ModelLineage(model.name, model.hash) for output, model in self.encoder.models.items()}
        models = {output: model for output, model in models.items() if output in before.models or output == "dense_query"}
        if models == before.models:
            return after
        queries = models.get("dense_query") or models["dense"]
        self.target.notes.append(f"Queries are encoded by {queries.name!r} from now on; no document was encoded for that.")
        return replace(after, models=models, fingerprint="", updated=self._now)

    def publish(self, after: Lineage, changes: Changes) -> None:
        """Publish a copy; after a change in place, check instead that the generation is still live.

        Raises:
            EngineError: The alias was moved meanwhile.
        """
        engine, name, target = self.engine, self.name, self.target
        target.ledger.put("lineage", after.as_meta())
        if self.mode.new:
            super().publish(after, changes)
            return
        index_setup.close_writer(engine, target.index, self.lease)
        target.ledger.put("state", "complete")
        audit.write(engine, "update", name, before=target.index, after=target.index, documents=changes.sent + changes.deleted)
        if (now := generations.live(engine, name)) != target.index:
            moved = f"pointed {name!r} at {now!r}" if now else f"removed the alias {name!r}"
            hint = f"'termweave promote {name} {target.index}' publishes it."
            raise EngineError(f"{target.index!r} was updated, and is not live: meanwhile somebody {moved}.", hint)


def _forget_missing(path: Path, pages: Iterator[list[str]]) -> set[str]:
    """Remove from a ledger the documents that the source does not have; returns the ids of documents that the source has and the ledger does not."""
    with readable_errors(path, "written"), closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TEMP TABLE present (id TEXT PRIMARY KEY) WITHOUT ROWID")
        for page in pages:
            db.executemany("INSERT OR IGNORE INTO present VALUES (?)", [(identity,) for identity in page])
        db.execute("DELETE FROM documents WHERE coalesce(parent, id) NOT IN (SELECT id FROM present)")
        lacking = db.execute("SELECT id FROM present EXCEPT SELECT coalesce(parent, id) FROM documents")
        return {identity for (identity,) in lacking}
