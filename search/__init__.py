"""Search: a query through every signal, fused, reranked, explained. Public names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from termweave.search.client import Connection, connect
    from termweave.search.index import Index
    from termweave.search.ranking.rnn import ReciprocalNeighbours

__all__ = ["Connection", "Index", "ReciprocalNeighbours", "connect"]

#: Where each public name lives. The command line reads the options of a search without loading anything else.
_HOME = {"Connection": "client", "Index": "index", "ReciprocalNeighbours": "ranking.rnn", "connect": "client"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"termweave.search.{_HOME[name]}"), name)
    raise AttributeError(f"module 'termweave.search' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
