"""Signals: the ways to score a document for a query (BM25, learned term weights, dense vectors), one file each.

To add a signal, add a file and an entry point in the group ``termweave.signals``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support.lazy_module import lazy_names

if TYPE_CHECKING:
    from termweave.signals.base import Clause, Fitting, Signal, TermShare
    from termweave.signals.dialect import dialect_of
    from termweave.signals.layout import DocumentLayout, signal_class
    from termweave.signals.pruning import Pruning

__all__ = ["Clause", "DocumentLayout", "Fitting", "Pruning", "Signal", "TermShare", "dialect_of", "signal_class"]

_HOME = {
    **dict.fromkeys(("Clause", "Fitting", "Signal", "TermShare"), "base"),
    "dialect_of": "dialect",
    **dict.fromkeys(("DocumentLayout", "signal_class"), "layout"),
    "Pruning": "pruning",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
