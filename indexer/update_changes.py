"""The changes of one update: the difference between source and generation, applied document by document."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.catalog import lineage
from termweave.indexer.generations import profile_transfer, statistics_drift
from termweave.indexer.generations.deletion import PAGE, remove
from termweave.indexer.job import Changes
from termweave.indexer.ledger import diff
from termweave.indexer.verification import SAMPLE, verify
from termweave.support.batching import in_parts
from termweave.support.messages import counted

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.engine import Engine
    from termweave.indexer.build_target import BuildTarget
    from termweave.indexer.pipeline.pipeline import Pipeline
    from termweave.indexer.preparation.corpus_pass import BuildProgress, CorpusPass
    from termweave.indexer.update_plan import UpdateMode

#: The warning of an update of an index that an earlier version built with --neighbours.
_WITHOUT_NEIGHBOURS = (
    "This index was built with --neighbours, which this version does not have: the documents that were sent now have their own words alone. "
    "Build again without --update, so that all documents are weighed alike."
)


def apply(pipeline: Pipeline, path: Path, corpus: CorpusPass, progress: BuildProgress, mode: UpdateMode) -> Changes:
    """Compare a source with its generation, send what differs, delete what is outdated.

    Args:
        pipeline: Sends the documents of the source to the generation.
        path: The ledger of the source.
        corpus: What reading the source found.
        progress: Called with (stage, done, total).
        mode: Whether documents that the source does not have are deleted, and whether the generation is a copy.
    """
    engine, target, ledger = pipeline.engine, pipeline.target, pipeline.target.ledger
    target.notes += [*_adopt_stored(engine, target), *corpus.notes, *corpus.metadata.against(target.lineage.types)]
    target.warnings += [*corpus.warnings, *statistics_drift.drift_after_update(target.statistics, corpus.statistics)]
    with diff.LedgerDiff(ledger.path, path) as difference:
        difference.enter()
        counts = difference.counts
        if counts.new or counts.changed or (mode.delete_missing and counts.gone):
            profile_transfer.write(engine, target.index, replace(target.lineage, fingerprint=lineage.CHANGING), None)
        sent = pipeline.run(progress)
        if sent and target.lineage.neighbours:
            target.warnings.append(_WITHOUT_NEIGHBOURS)
        difference.keep_refused()
        outdated = remove(engine, target.index, target.lease, ledger, difference.stale(gone=False))
        deleted = _delete_missing(pipeline, difference) if mode.delete_missing else 0
        sample = {*difference.sample(SAMPLE), *(ledger.sample(SAMPLE) if mode.new else ())}
        return Changes(sent, sorted(sample), difference.settled(), deleted, outdated)


def _adopt_stored(engine: Engine, target: BuildTarget) -> list[str]:
    """Make the ledger list what the index holds; returns a sentence if it did not."""
    without_ledger = not target.ledger.total
    count = diff.adopt(engine, target.index, target.ledger, target.layout)
    documents = counted(count, "document was", "documents were")
    sentence = (
        f"This host has no ledger of {target.index}: {documents} taken as stored, by the digests beside them "
        "('termweave verify NAME --deep' reads them back)."
        if without_ledger
        else f"{documents} not stored as this host's ledger said (an update from another host, an interrupted update, or damage). "
        "They were read back; those that do not agree with their own digests count as changed."
    )
    return [sentence] if count else []


def _delete_missing(pipeline: Pipeline, difference: diff.LedgerDiff) -> int:
    """Delete the documents that the source does not have, and what is stored without belonging to any document."""
    engine, target, skipped = pipeline.engine, pipeline.target, pipeline.source.skipped
    deleted = difference.counts.gone
    if deleted and skipped:  # an entry that cannot be read may be one of them
        target.warnings.append(_nothing_deleted(deleted, skipped.count))
        deleted = 0
    else:
        remove(engine, target.index, target.lease, target.ledger, difference.stale(gone=True))
    foreign = verify(engine, target.index, target.ledger, made=target.lineage).extra
    return deleted + remove(engine, target.index, target.lease, None, in_parts(foreign, PAGE))


def _nothing_deleted(gone: int, skipped: int) -> str:
    """The warning that nothing was deleted, because some entries of the source cannot be read."""
    return (
        f"Not deleted: {counted(gone, 'document')} that the source does not have, because {counted(skipped, 'entry', 'entries')} of it could not "
        "be read and may be these. Correct the source and update again, or name what to delete: 'termweave delete NAME --ids FILE'."
    )
