"""A build or an update: the phases that both have, in their order.

``lock the name -> read the source -> open a generation -> send -> verify -> measure -> store the lineage -> move the alias``

`read` changes nothing that is searched, so a caller can ask a user before `write`. A job may be stopped at any time: the same command
continues it. The lineage is stored before the alias moves, and the state of the ledger is written last: a generation that is published and not
marked so is recognised, and one that is marked so is published.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

from termweave.catalog import generations, statistics_store
from termweave.catalog.lineage import CHANGING, Lineage, unless_missing
from termweave.errors import RefusedDocuments, VerificationFailed
from termweave.indexer.generations import index_setup, publication
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import dead_letters
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.verification import Difference, verify_written
from termweave.support import arguments

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.ledger.diff import ChangeCounts
    from termweave.indexer.ledger.ledger import Ledger
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.update_plan import LargeDeletion
    from termweave.statistics import CorpusStatistics

#: Measures a verified generation, and returns why it must not be published; "": it may be.
PublicationCheck = Callable[[str], str]
#: Seconds of waiting that are worth a note.
_NOTICEABLE = 5.0


@dataclass(frozen=True)
class IndexingResult:
    """The result of a build or an update.

    Attributes:
        name: The alias.
        index: The generation that was built or updated.
        documents: Documents in it.
        passages: How many texts the documents are stored as; equal to `documents` if no document was cut.
        counts: How the source and the generation differed before an update; None: this is a build.
        sent: Documents or passages that this run sent; a build that is resumed sends fewer than `passages`.
        deleted: Documents that an update deleted.
        outdated: Passages that an update deleted because their changed documents no longer have them.
        seconds: Wall-clock time.
        signals: Names of the signals.
        notes: What a user should know: left-out signals, skipped documents, a resume.
        warnings: What a user should not miss.
        missed: Why its gate kept the generation, which is whole, from being published; "": it is live.
    """

    name: str
    index: str
    documents: int
    passages: int
    counts: ChangeCounts | None
    sent: int
    deleted: int
    outdated: int
    seconds: float
    signals: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    missed: str = ""


@dataclass(frozen=True)
class Changes:
    """The changes that a build or an update made to a generation.

    Attributes:
        sent: Documents or passages that were sent.
        sample: Ids of some of what was sent and is stored: verification reads them back.
        counts: How the source and the generation differed; None: the generation was new.
        deleted: Documents that were deleted.
        outdated: Passages that were deleted because their changed documents no longer have them.
    """

    sent: int
    sample: Sequence[str]
    counts: ChangeCounts | None = None
    deleted: int = 0
    outdated: int = 0


@dataclass
class BuildTarget:
    """The generation that a build or an update writes into.

    Attributes:
        index: The concrete index.
        lineage: Its lineage when the command began to write.
        statistics: The collection statistics behind the term weights; None: there is no weights model.
        ledger: Its ledger.
        lease: The lease under which it is written.
        notes: Sentences that a user should know.
        warnings: Sentences that a user should not miss.
    """

    index: str
    lineage: Lineage
    statistics: CorpusStatistics | None
    ledger: Ledger
    lease: Lease
    notes: list[str]
    warnings: list[str]

    @property
    def layout(self) -> DocumentLayout:
        """The layout of the generation's documents."""
        return self.lineage.layout


@dataclass
class Job(ABC):
    """A build or an update of a name. While its `with` statement runs, no other build or update of the name can run.

    Attributes:
        engine: The server.
        source: The corpus; once it is read, its passages.
        name: The alias.
        options: The build options.
        gate: Measures the verified generation before it is published; None: nothing is required of the generation.
        live: The live generation: given by a caller that has read its lineage, else set by `read`. None: no generation is live.
        large: The error that `write` raises if an update would delete too much; a caller whose user agrees sets it to None.
    """

    engine: Engine
    source: Source
    name: str
    options: BuildOptions
    gate: PublicationCheck | None = None
    live: generations.LiveGeneration | None = None
    large: LargeDeletion | None = field(default=None, init=False)
    lease: Lease = field(init=False)
    encoder: TextEncoder = field(init=False)
    target: BuildTarget = field(init=False)

    def __post_init__(self) -> None:
        """Check the arguments; no request is sent."""
        arguments.check(engine=self.engine, source=self.source, options=self.options)
        generations.check_spelling(self.name)
        self.engine = self.engine.patient(self.options.patience)
        self._started = time.monotonic()
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        """Lock the name against other builds and updates.

        Raises:
            TermweaveError: Another job of the name is running, here or on another host.
        """
        self.lease = self._closing.enter_context(storage.lease(self.engine, self.name))
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def run(self, progress: BuildProgress) -> IndexingResult:
        """Lock the name, read the source and write the generation: `read`, then `write`.

        Args:
            progress: Called with (stage, done, total or None).
        """
        with self:
            self.read(progress)
            return self.write(progress)

    @abstractmethod
    def read(self, progress: BuildProgress) -> None:
        """Read the source and prepare the writing. The live generation does not change.

        Raises:
            UsageError: The generation cannot be made, or not be updated, with these options.
            InputError: The source has an entry that cannot be read, or an id twice.
        """

    def open(self, progress: BuildProgress) -> BuildTarget:
        """Return the generation to write into, opened; `read` may have opened it already, to fill its ledger."""
        del progress
        return self.target

    @abstractmethod
    def send(self, pipeline: Pipeline, progress: BuildProgress) -> Changes:
        """Send the documents that the generation lacks; returns the changes that were made."""

    @abstractmethod
    def finish_loading(self) -> None:
        """Make the generation searchable, with the refresh interval and the replicas that it is to keep."""

    @abstractmethod
    def advise(self, difference: Difference) -> str:
        """Return advice about a generation that does not hold exactly what was sent."""

    @abstractmethod
    def rejected(self) -> None:
        """Note that the server refused documents, or that the generation does not hold exactly what was sent."""

    @abstractmethod
    def remarks(self, changes: Changes) -> list[str]:
        """Return sentences for the user about the verified generation."""

    def lineage(self, changes: Changes) -> Lineage:
        """Return the lineage that the generation has once it is published."""
        del changes
        before, ledger = self.target.lineage, self.target.ledger
        passages = before.passages and {**before.passages, "count": ledger.acknowledged, "most": ledger.most_passages}
        return replace(before, complete=True, documents=ledger.documents, passages=passages)

    def publish(self, after: Lineage, changes: Changes) -> None:
        """Point the alias at the generation, and note in its ledger that it is complete."""
        del after, changes
        publication.publish(self.engine, self.name, self.target.index, self.live.index if self.live else None, lease=self.lease)
        self.target.ledger.put("state", "complete")

    def write(self, progress: BuildProgress) -> IndexingResult:
        """Send the documents that the generation lacks, verify the generation, and publish it unless it misses its gate.

        Args:
            progress: Called with (stage, done, total or None).

        Raises:
            LargeDeletion: An update would delete more than it may; nothing has changed.
            RefusedDocuments: The server refused documents; the alias was not moved.
            VerificationFailed: What is stored is not what was sent; the alias was not moved.
            EngineError: The alias was moved by somebody else, or another job has taken over the lease.
        """
        if self.large is not None:
            raise self.large
        target = self.target = self.open(progress)
        self._closing.callback(target.ledger.close)
        try:
            changes = self.send(Pipeline(self.engine, self.source, self.encoder, target, self.options), progress)
            self._verify(changes)
        except (RefusedDocuments, VerificationFailed):
            self.rejected()
            raise
        if (waited := self.engine.retries.waited) >= _NOTICEABLE:
            advice = "a slower pace (--workers 1) or more memory may help."
            target.notes.append(f"Waited {waited:.0f} s for the server, which was overloaded or away; {advice}")
        target.notes += self.remarks(changes)
        after = self.lineage(changes)
        missed = self._measure(after)
        if not missed:
            self.lease.check()
            target.warnings += publication.write_lineage(self.engine, target.index, after, self.live)
            self.publish(after, changes)
        return IndexingResult(
            name=self.name,
            index=target.index,
            documents=target.ledger.documents,
            passages=target.ledger.acknowledged,
            counts=changes.counts,
            sent=changes.sent,
            deleted=changes.deleted,
            outdated=changes.outdated,
            seconds=time.monotonic() - self._started,
            signals=tuple(after.signals),
            notes=tuple(target.notes),
            warnings=tuple(target.warnings),
            missed=missed,
        )

    def _verify(self, changes: Changes) -> None:
        """Compare the generation with its ledger, and check that the server refused no more documents than it may."""
        engine, target = self.engine, self.target
        self.finish_loading()
        target.notes += dead_letters.check_share(target.ledger, target.index, self.options.allow_refused)
        difference = verify_written(engine, target.index, target.lineage, target.ledger, changes.sample)
        if not difference.ok:
            hint = self.advise(difference)
            if difference.inside:
                hint += " The server changes documents when it stores them: look for an ingest pipeline or a plugin."
                hint += f" {index_setup.template_advice(engine, target.index)}".rstrip()
            raise VerificationFailed(f"{target.index} {difference}.", hint)

    def keep_statistics(self, index: str, statistics: CorpusStatistics | None) -> None:
        """Store the statistics of a generation if the cluster lacks them, because they are new or somebody deleted them."""
        if statistics is not None and not statistics_store.is_complete(self.engine, index):
            statistics_store.save(self.engine, index, statistics, {"index.number_of_replicas": self.replicas()})

    def replicas(self) -> int:
        """Return the number of replicas: the option if it is set, else 1 if there are several data nodes, else 0."""
        if self.options.replicas is not None:
            return self.options.replicas
        health = unless_missing(lambda: self.engine.request("GET", "/_cluster/health"), HTTPStatus.FORBIDDEN)
        # Where this user may not ask: a replica without a second node does no harm.
        return 1 if health is None or health["number_of_data_nodes"] > 1 else 0

    def _measure(self, after: Lineage) -> str:
        """Ask the gate about the verified generation; returns why the generation must not be published, or "".

        The gate searches with the default profile, so the generation is first given the profiles that it would be published with. A generation
        that is not published is marked as complete in its lineage, so that it can be promoted or pruned.
        """
        if self.gate is None:
            return ""
        engine, target = self.engine, self.target
        # A generation that an update has changed has no fingerprint; until it is published, it is marked as being changed.
        unpublished = replace(after, complete=False, fingerprint=after.fingerprint or CHANGING)
        publication.write_lineage(engine, target.index, unpublished, self.live)
        if missed := self.gate(target.index):
            publication.write_lineage(engine, target.index, replace(after, missed=missed), self.live)
            target.ledger.put("lineage", replace(after, complete=False).as_meta())  # for a build that calls the gate again
            target.ledger.put("state", "missed")
        return missed
