"""The table that `termweave index --plan` prints."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave.indexer.preparation.estimate import BuildEstimate
    from termweave.indexer.update_plan import UpdateMode, UpdatePlan


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
        "encoding": f"about {timedelta(seconds=round(estimate.encode_seconds))} on this machine",
        "index": f"about {sized(estimate.index_bytes)} per copy",
        "disk": f"{sized(estimate.disk_bytes)} free during the build",
        "heap": f"{sized(estimate.heap_bytes)} on the server",
        "memory": f"{sized(estimate.cache_bytes)} in addition to the heap, for fast searches",
        "clauses": f"{clauses.mean:.1f} per query, at most {clauses.most} ({clauses.of}); the server allows {clauses.limit:,}",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def update_table(plan: UpdatePlan, mode: UpdateMode) -> str:
    """Show what an update would change, one line for each kind of change."""
    counts = plan.counts
    missing = f"{counts.gone:,}"
    if counts.gone and not mode.delete_missing:
        missing += " no longer in the source; they are kept without --delete-missing"
    elif counts.gone and not plan.deletions:
        missing += " not found in the source; they are kept, because some of its entries cannot be read"
    elif not plan.allowed:
        missing += f", more than the {mode.allow_deletions:.0%} that may be deleted: add --allow-deletions {plan.share:.0%}"
    rows = {
        "index": f"{plan.index}, {plan.documents:,} documents",
        "add": f"{counts.new:,}",
        "change": f"{counts.changed:,}",
        "keep": f"{counts.unchanged:,}",
        "delete": missing,
        "where": "a copy, which replaces the live generation" if plan.new else "the live generation",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())
