"""The JSON of an evaluation, the same for the command line and web pages. The schema is in docs/schemas."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from termweave.evaluation.experiment import Experiment


def evaluation(experiment: Experiment) -> dict[str, Any]:
    """Return the results as JSON data: a row for each system and measure, and figures of each system as a whole."""
    rows = [
        {
            "system": row.system,
            "mode": row.mode,
            "reranker": row.reranker,
            "measure": name,
            "value": value,
            "p": row.p.get(name),
            "n": len(experiment.queries),
        }
        for row in experiment.rows
        for name, value in row.values.items()
    ]
    systems = [
        {
            "system": row.system,
            "wins": row.wins,
            "ties": row.ties,
            "losses": row.losses,
            "judged": row.judged,
            "latency_ms": asdict(experiment.latency[row.system]) if row.system in experiment.latency else None,
        }
        for row in experiment.rows
    ]
    return {
        "schema": "termweave.evaluate/1",
        "dataset": experiment.dataset,
        "baseline": experiment.baseline,
        "rows": rows,
        "systems": systems,
        "notes": list(experiment.notes),
    }
