"""Search: a query through every signal, fused, reranked, explained."""

from __future__ import annotations

from termweave.search.connection import Connection, connect
from termweave.search.index import Index
from termweave.search.ranking import Reranking

__all__ = ["Connection", "Index", "Reranking", "connect"]
