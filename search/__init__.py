"""Search: send a query through every signal, fuse and rerank the candidates, explain the scores.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

if TYPE_CHECKING:
    from termweave.search.index import Index

__all__ = ["Index"]

#: Where each public name lives. The command line reads the options of a search without loading anything else.
_HOME = {"Index": "index"}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
