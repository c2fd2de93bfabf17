"""The result of `termweave index`: what a build or an update did, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.corpora import OpenedSource
    from termweave.evaluation.publication_gate import PublicationGate
    from termweave.indexer import IndexingResult
    from termweave.indexer.ledger.diff import ChangeCounts


def report(built: IndexingResult, source: OpenedSource, gate: PublicationGate, out: Output, *, kept: bool) -> None:
    """Report the result of a build or an update.

    Args:
        built: The result.
        source: The corpus.
        gate: The gate of the build.
        out: Where to write.
        kept: Whether documents that the source does not have were kept.
    """
    for warning in built.warnings:
        out.warn(warning)
    for note in built.notes:
        out.say(note)
    for skipped in source.skipped:
        out.detail(f"Left out: {skipped}.")
    data: dict[str, Any] = {
        "schema": "termweave.index/1",
        "name": built.name,
        "generation": built.index,
        "documents": built.documents,
        "passages": built.passages,
        "sent": built.sent,
        "signals": list(built.signals),
        "seconds": round(built.seconds, 3),
        "published": not built.missed,
        "gates": gate.verdicts,
        "notes": [*source.remarks, *built.warnings, *built.notes, *map(str, source.skipped)],
    }
    text = _summary(built)
    if built.counts is not None:
        data["update"] = {**asdict(built.counts), "deleted": built.deleted, "outdated": built.outdated}
        text += _changes(built, built.counts, kept=kept)
    out.emit(data, text)


def _summary(built: IndexingResult) -> str:
    """One line: how many documents are where, and how long it took."""
    passages = f" ({counted(built.passages, 'passage')})" if built.passages != built.documents else ""
    rate = built.sent / built.seconds if built.seconds else 0.0
    speed = f", {rate:,.0f}/s" if rate >= 1 else ""  # an update spends most of its time on comparing
    return (
        f"{built.name}: {counted(built.documents, 'document')}{passages} in {built.index}, verified and "
        f"{'not published' if built.missed else 'live'} ({', '.join(built.signals)}; {built.sent:,} sent in {built.seconds:.1f} s{speed})"
    )


def _changes(updated: IndexingResult, counts: ChangeCounts, *, kept: bool) -> str:
    """Further lines for an update: what it changed."""
    text = f"\nDocuments: {counts}"
    if counts.gone and kept:
        text += f" (kept; --delete-missing deletes {'it' if counts.gone == 1 else 'them'})"
    text += f"; {updated.deleted:,} deleted" if updated.deleted else ""
    if updated.outdated:
        text += f"\nPassages: {updated.outdated:,} that changed documents have no longer were deleted"
    return text
