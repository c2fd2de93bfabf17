"""A build or an update of an index as a terminal shows it: plan, progress, the stop by Ctrl-C or SIGTERM, and the result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar

import click

from termweave import indexer
from termweave.errors import TermweaveError
from termweave.support.messages import counted, duration, sized

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.cli.output import Output
    from termweave.corpora import OpenedSource, Source
    from termweave.engine import Engine
    from termweave.evaluation.index_comparison import PublicationGate
    from termweave.indexer import BuildOptions, IndexingResult, UpdateMode
    from termweave.indexer.preparation.corpus_pass import BuildProgress
    from termweave.indexer.preparation.estimate import BuildEstimate
    from termweave.indexer.update_plan import UpdatePlan

T = TypeVar("T")


def _build_rows(estimate: BuildEstimate) -> dict[str, str]:
    """The rows of the printed plan of a build: name of a figure -> its value as text."""
    about = "" if estimate.exact else "about "
    clauses, speed = estimate.clauses, ""
    if estimate.model_bytes and estimate.encode_seconds:
        rate = estimate.passages / estimate.encode_seconds
        speed = f" ({rate:,.0f} texts a second, models of {sized(estimate.model_bytes)})"
    return {
        "documents": f"{about}{estimate.documents:,}",
        "passages": f"{about}{estimate.passages:,}",
        "source": f"{estimate.source}, {sized(estimate.source_bytes)}",
        "signals": ", ".join(estimate.signals),
        "models": ", ".join(f"{output}: {model}" for output, model in estimate.models.items()) or "none",
        "encoding": f"about {duration(estimate.encode_seconds)} on this machine{speed}",
        "index": f"about {sized(estimate.index_bytes)} per copy",
        "disk": f"needs {sized(estimate.disk_bytes)} of free space on the server during the build",
        "heap": f"needs {sized(estimate.heap_bytes)} on the server",
        "memory": f"needs {sized(estimate.cache_bytes)} in addition to the heap, for fast searches",
        "clauses": f"{clauses.mean:.1f} per query, at most {clauses.most} ({clauses.of}); the server allows {clauses.limit:,}",
    }


def _update_rows(plan: UpdatePlan, mode: UpdateMode) -> dict[str, str]:
    """The rows of the printed plan of an update: kind of change -> number of documents as text."""
    counts = plan.counts
    missing = f"{counts.gone:,}"
    if counts.gone and not mode.delete_missing:
        missing += " no longer in the source; they are kept without --delete-missing"
    elif counts.gone and not plan.deletions:
        missing += " not found in the source; they are kept, because some of its entries cannot be read"
    elif not plan.allowed:
        missing += f", more than the {mode.allow_deletions:.0%} that may be deleted without --yes"
    return {
        "index": f"{plan.index}, {plan.documents:,} documents",
        "add": f"{counts.new:,}",
        "change": f"{counts.changed:,}",
        "keep": f"{counts.unchanged:,}",
        "delete": missing,
        "where": "a copy, which replaces the live generation" if plan.new else "the live generation",
    }


def queries_of(dataset: str | None, source: str) -> list[str]:
    """The texts of the judged queries of the data set in --on, else of SOURCE; empty if SOURCE has no judged queries.

    Raises:
        TermweaveError: --on names no data set.
    """
    from termweave import corpora

    if not dataset and Path(source).is_file():  # a table of two columns would be a click log, too
        return []
    try:
        return [query.text for query in corpora.open_dataset(dataset or source).queries()]
    except TermweaveError:
        if dataset:
            raise
        return []


def show_plan(
    server: Engine, source: Source, name: str, live: LiveGeneration | None, queries: list[str], options: BuildOptions, out: Output
) -> None:
    """Print the plan of a build: what it would make and need, compared with the live generation."""
    from termweave.indexer.preparation.corpus_pass import live_statistics
    from termweave.indexer.preparation.estimate import estimate_build

    statistics = None
    try:
        statistics = live_statistics(server, live)
    except TermweaveError as error:  # a build replaces what is damaged: it can still be planned
        out.warn(f"The statistics of the live generation are not compared: {error.message}")
    with out.stages("Reading") as progress:
        estimate = estimate_build(source, server.capabilities, options, queries, progress, live=statistics)
    _show(estimate, {"schema": "termweave.plan/1", "name": name}, _build_rows(estimate), out)


def show_update_plan(server: Engine, source: Source, name: str, options: BuildOptions, mode: UpdateMode, out: Output) -> None:
    """Print the plan of an update: how many documents it would add, change and delete."""
    with out.stages("Reading") as progress:
        plan = indexer.plan_update(server, source, name, options, mode, progress)
    _show(plan, {"schema": "termweave.update-plan/1"}, _update_rows(plan, mode), out)


def _show(plan: BuildEstimate | UpdatePlan, head: dict[str, str], rows: dict[str, str], out: Output) -> None:
    out.say(*plan.notes)
    out.emit({**head, **asdict(plan)}, "\n".join(f"{name:<10} {value}" for name, value in rows.items()))
    out.warn(*plan.warnings)


def report(built: IndexingResult, source: OpenedSource, gate: PublicationGate, out: Output, *, keeps_missing: bool) -> None:
    """Print the result of a build or an update, with warnings and notes.

    Args:
        built: The result of the build or update.
        source: The corpus that was indexed.
        gate: The gate, with a verdict on each of its conditions.
        out: Where the result is printed.
        keeps_missing: Whether documents that the source does not have stay in the index.
    """
    out.warn(*built.warnings)
    out.say(*built.notes)
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
        "gates": list(map(asdict, gate.verdicts)),
        "notes": [*source.remarks, *built.warnings, *built.notes, *map(str, source.skipped)],
    }
    text = _summary(built)
    if (counts := built.counts) is not None:
        data["update"] = {**asdict(counts), "deleted": built.deleted, "outdated": built.outdated}
        stay = counts.gone and keeps_missing
        missing = f" (kept; --delete-missing deletes {'it' if counts.gone == 1 else 'them'})" if stay else ""
        text += f"\nDocuments: {counts}{missing}{f'; {built.deleted:,} deleted' if built.deleted else ''}"
        text += f"\nPassages: {built.outdated:,} that changed documents have no longer were deleted" if built.outdated else ""
    out.emit(data, text)


def _summary(built: IndexingResult) -> str:
    """Summarise a build in one line: number of documents, generation, signals and duration."""
    passages = f" ({counted(built.passages, 'passage')})" if built.passages != built.documents else ""
    rate = built.sent / built.seconds if built.seconds else 0.0
    speed = f", {rate:,.0f}/s" if rate >= 1 else ""  # an update spends most of its time on comparing
    return (
        f"{built.name}: {counted(built.documents, 'document')}{passages} in {built.index}, verified and "
        f"{'not published' if built.missed else 'live'} ({', '.join(built.signals)}; {built.sent:,} sent in {built.seconds:.1f} s{speed})"
    )


def watched(run: Callable[[BuildProgress], T], out: Output, nouns: tuple[str, str]) -> T:
    """Run a phase of a build or an update with a progress bar.

    A build that is stopped prints how many documents the engine has acknowledged.

    Args:
        run: The phase.
        out: Where messages are printed.
        nouns: Noun for the things that the build counts, singular and plural: ("document", "documents").

    Raises:
        Exit: The build was stopped, with status 130 by Ctrl-C or 143 by SIGTERM.
    """
    from termweave.indexer.pipeline.pipeline import SENDING, STOPPING

    terminated = Event()
    stopping = False
    acknowledged = ""

    def show(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        nonlocal stopping, acknowledged
        if stage == STOPPING and not stopping:
            stopping = True  # even without a bar the user sees that the first Ctrl-C was understood
            again = "A second SIGTERM" if terminated.is_set() else "Pressing Ctrl-C again"
            out.say(f"Waiting for the requests that are under way. {again} stops at once.")
        if stage in {SENDING, STOPPING}:
            acknowledged = f"{done:,} of {counted(total or 0, *nouns)}"
        bar(done, total, stage, detail)

    try:
        with terminable(terminated), out.progress("Reading") as bar:
            return run(show)
    except KeyboardInterrupt:
        sent = f"The engine has acknowledged {acknowledged}. Run the same command to continue from there."
        out.say(f"Stopped. {sent if acknowledged else 'Nothing was sent. The same command starts again.'}")
        raise click.exceptions.Exit(143 if terminated.is_set() else 130) from None


@contextmanager
def terminable(terminated: Event) -> Iterator[None]:
    """Within the context let SIGTERM stop a command as Ctrl-C does, and set `terminated` when it arrives."""
    if current_thread() is not main_thread():  # only the main thread may set handlers
        yield
        return

    def end(*_: object) -> None:
        terminated.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
