"""Search: a query through every signal, fused, reranked, explained."""

from __future__ import annotations

from termweave.search.client import Connection, connect
from termweave.search.index import Index
from termweave.search.ranking.rnn import ReciprocalNeighbours

__all__ = ["Connection", "Index", "ReciprocalNeighbours", "connect"]
