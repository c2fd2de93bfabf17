"""What `termweave index` prints: a plan, and what a build or an update did."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from termweave.support.messages import counted, duration, sized

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.cli.common.output import Output
    from termweave.corpora import OpenedSource, Source
    from termweave.engine import Engine
    from termweave.evaluation.publication_gate import PublicationGate
    from termweave.indexer import BuildOptions, IndexingResult, UpdateMode
    from termweave.indexer.ledger.diff import ChangeCounts
    from termweave.indexer.preparation.estimate import BuildEstimate
    from termweave.indexer.update_plan import UpdatePlan


def table(estimate: BuildEstimate) -> str:
    """Format an estimate as lines of a name and a value."""
    about = "" if estimate.exact else "about "
    clauses = estimate.clauses
    rows = {
        "documents": f"{about}{estimate.documents:,}",
        "passages": f"{about}{estimate.passages:,}",
        "source": f"{estimate.source}, {sized(estimate.source_bytes)}",
        "signals": ", ".join(estimate.signals),
        "models": ", ".join(f"{output}: {model}" for output, model in estimate.models.items()) or "none",
        "encoding": f"about {duration(estimate.encode_seconds)} on this machine{_speed(estimate)}",
        "index": f"about {sized(estimate.index_bytes)} per copy",
        "disk": f"needs {sized(estimate.disk_bytes)} of free space on the server during the build",
        "heap": f"needs {sized(estimate.heap_bytes)} on the server",
        "memory": f"needs {sized(estimate.cache_bytes)} in addition to the heap, for fast searches",
        "clauses": f"{clauses.mean:.1f} per query, at most {clauses.most} ({clauses.of}); the server allows {clauses.limit:,}",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def _speed(estimate: BuildEstimate) -> str:
    """Texts a second, and the size of the models."""
    if not estimate.model_bytes or not estimate.encode_seconds:
        return ""
    return f" ({estimate.passages / estimate.encode_seconds:,.0f} texts a second, models of {sized(estimate.model_bytes)})"


def update_table(plan: UpdatePlan, mode: UpdateMode) -> str:
    """Show what an update would change, one line for each kind of change."""
    counts = plan.counts
    missing = f"{counts.gone:,}"
    if counts.gone and not mode.delete_missing:
        missing += " no longer in the source; they are kept without --delete-missing"
    elif counts.gone and not plan.deletions:
        missing += " not found in the source; they are kept, because some of its entries cannot be read"
    elif not plan.allowed:
        missing += f", more than the {mode.allow_deletions:.0%} that may be deleted without --yes"
    rows = {
        "index": f"{plan.index}, {plan.documents:,} documents",
        "add": f"{counts.new:,}",
        "change": f"{counts.changed:,}",
        "keep": f"{counts.unchanged:,}",
        "delete": missing,
        "where": "a copy, which replaces the live generation" if plan.new else "the live generation",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def queries_of(dataset: str | None, source: str) -> list[str]:
    """The texts of the judged queries of --on, else those of SOURCE, if it has any.

    Raises:
        TermweaveError: --on names no data set.
    """
    from termweave import corpora
    from termweave.errors import TermweaveError

    try:
        return [query.text for query in corpora.open_dataset(dataset or source).queries()]
    except TermweaveError:
        if dataset:
            raise
        return []


def show_plan(
    server: Engine,
    source: Source,
    name: str,
    live: LiveGeneration | None,
    queries: list[str],
    options: BuildOptions,
    out: Output,
) -> None:
    """Report what a build would make and need, beside the live generation."""
    from termweave.errors import TermweaveError
    from termweave.indexer.preparation.corpus_remarks import live_statistics
    from termweave.indexer.preparation.estimate import estimate_build

    statistics = None
    try:
        statistics = live_statistics(server, live)
    except TermweaveError as error:  # a build replaces what is damaged: it can still be planned
        out.warn(f"The statistics of the live generation are not compared: {error.message}")
    with out.stages("Reading") as progress:
        estimate = estimate_build(source, server.capabilities, options, queries, progress, live=statistics)
    for note in estimate.notes:
        out.say(note)
    out.emit({"schema": "termweave.plan/1", "name": name, **asdict(estimate)}, lambda: table(estimate))
    for warning in estimate.warnings:
        out.warn(warning)


def show_update_plan(server: Engine, source: Source, name: str, options: BuildOptions, mode: UpdateMode, out: Output) -> None:
    """Report what an update would add, change and delete."""
    from termweave.indexer import plan_update

    with out.stages("Reading") as progress:
        plan = plan_update(server, source, name, options, mode, progress)
    for note in plan.notes:
        out.say(note)
    out.emit({"schema": "termweave.update-plan/1", **asdict(plan)}, lambda: update_table(plan, mode))
    for warning in plan.warnings:
        out.warn(warning)


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
