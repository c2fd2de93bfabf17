"""The rerankers that `--rerank` names, one file each, and the arithmetic behind them. This package sends no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

if TYPE_CHECKING:
    from termweave.rerank.neighbours.equations import Rules
    from termweave.rerank.neighbours.reciprocal import (
        Neighbourhood,
        evidence,
        labels,
        neighbourhood,
        reciprocal,
        reciprocal_batch,
    )
    from termweave.rerank.rnn import ReciprocalNeighbours

__all__ = [
    "Neighbourhood",
    "ReciprocalNeighbours",
    "Rules",
    "evidence",
    "labels",
    "neighbourhood",
    "reciprocal",
    "reciprocal_batch",
]

_HOME = dict.fromkeys(__all__, "neighbours.reciprocal") | {"ReciprocalNeighbours": "rnn", "Rules": "neighbours.equations"}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
