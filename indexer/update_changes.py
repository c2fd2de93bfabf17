"""The changes of one update: the difference between source and generation, applied document by document."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.corpora.sources import origin
from termweave.indexer.builder import CHANGING, send_rest
from termweave.indexer.generations import profile_transfer, statistics_drift
from termweave.indexer.generations.deletion import PAGE, remove
from termweave.indexer.ledger import diff
from termweave.indexer.verification import verify
from termweave.support.batching import in_parts
from termweave.support.messages import counted

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.build_target import BuildTarget
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass
    from termweave.search.catalog.lineage import Lineage


#: The warning of an update of an index that an earlier version built with --neighbours.
_WITHOUT_NEIGHBOURS = (
    "This index was built with --neighbours, which this version does not have: the documents that were sent now have their own words alone. "
    "Build again without --update, so that all documents are weighed alike."
)


class UpdateChanges:
    """The changes of one update.

    Args:
        engine: The server.
        source: The corpus, or its passages.
        options: The options of the update.
        encoder: The models of the generation.
        target: The generation to change.

    Attributes:
        counts: How the source and the generation differed.
        sent: Documents or passages that were sent.
        deleted: Documents that were deleted.
        outdated: Passages that changed documents no longer have.
    """

    def __init__(self, engine: Engine, source: Source, options: BuildOptions, encoder: TextEncoder, target: BuildTarget) -> None:
        self.counts = diff.ChangeCounts(0, 0, 0, 0)
        self.sent = self.deleted = self.outdated = 0
        self._engine, self._options, self._encoder, self._target = engine, options, encoder, target
        self._source = source
        self._origin = origin(source)

    def apply(self, path: Path, corpus: CorpusPass, progress: BuildProgress, *, delete_missing: bool) -> None:
        """Compare the source with the generation, send what differs, delete what is outdated.

        Args:
            path: The ledger of the source.
            corpus: What reading the source found.
            progress: Called with (stage, done, total).
            delete_missing: Delete documents that the source does not have.
        """
        engine, target, ledger = self._engine, self._target, self._target.ledger
        self._adopt_stored()
        target.notes += [*corpus.notes, *corpus.metadata.against(target.lineage.types)]
        target.warnings += [*corpus.warnings, *statistics_drift.drift_after_update(target.statistics, corpus.statistics)]
        with diff.LedgerDiff(ledger.path, path) as difference:
            difference.enter()
            counts = difference.counts
            if counts.new or counts.changed or (delete_missing and counts.gone):
                profile_transfer.write(engine, target.index, replace(target.lineage, fingerprint=CHANGING), None)
            self.sent = send_rest(engine, self._source, self._options, self._encoder, target, progress)
            if self.sent and target.lineage.neighbours:
                target.warnings.append(_WITHOUT_NEIGHBOURS)
            difference.keep_refused()
            self.outdated = remove(engine, target.index, target.lease, ledger, difference.stale(gone=False))
            if delete_missing:
                self._delete_missing(difference)
            self.counts = difference.settled()

    def lineage_after(self, now: str) -> Lineage:
        """The lineage afterwards. A changed generation has no fingerprint: no build of its source would make it."""
        ledger, made, counts = self._target.ledger, self._target.lineage, self.counts
        passages = {**made.passages, "count": ledger.acknowledged, "most": ledger.most_passages} if made.passages else {}
        after = replace(made, documents=ledger.documents, passages=passages, complete=True)
        if not (counts.new or counts.changed or self.deleted or self.outdated or made.fingerprint == CHANGING):
            return after
        return replace(after, source=self._origin, fingerprint="", updated=now)

    def _adopt_stored(self) -> None:
        """Make the ledger list what the index holds, and note where it did not."""
        target = self._target
        without_ledger = not target.ledger.total
        count = diff.adopt(self._engine, target.index, target.ledger, target.layout)
        documents = counted(count, "document was", "documents were")
        if count and without_ledger:
            target.notes.append(
                f"This host has no ledger of {target.index}: {documents} taken as stored, by the digests beside them "
                "('termweave verify NAME --deep' reads them back)."
            )
        elif count:
            target.notes.append(
                f"{documents} not stored as this host's ledger said (an update from another host, an interrupted update, or damage). "
                "They were read back; those that do not agree with their own digests count as changed."
            )

    def _delete_missing(self, difference: diff.LedgerDiff) -> None:
        """Delete the documents that the source does not have, and what is stored without belonging to any document."""
        engine, target = self._engine, self._target
        gone = difference.counts.gone
        if gone and self._source.skipped:  # an entry that cannot be read may be one of them
            target.warnings.append(_kept(gone, self._source.skipped.count))
        else:
            remove(engine, target.index, target.lease, target.ledger, difference.stale(gone=True))
            self.deleted = gone
        foreign = verify(engine, target.index, target.ledger, made=target.lineage).extra
        self.deleted += remove(engine, target.index, target.lease, None, in_parts(foreign, PAGE))


def _kept(gone: int, skipped: int) -> str:
    """The warning that nothing was deleted, because some entries of the source cannot be read."""
    return (
        f"Not deleted: {counted(gone, 'document')} that the source does not have, because {counted(skipped, 'entry', 'entries')} of it could not "
        "be read and may be these. Correct the source and update again, or name what to delete: 'termweave delete NAME --ids FILE'."
    )
