"""Signals: the ways in which a document can answer a query, one file each.

Adding one is adding a file and an entry point in the group ``termweave.signals``; nothing else changes.
"""

from __future__ import annotations

from termweave.signals.base import Clause, Fitting, Signal, TermShare
from termweave.signals.layout import DocumentLayout, signal_class
from termweave.signals.pruning import Pruning

__all__ = ["Clause", "DocumentLayout", "Fitting", "Pruning", "Signal", "TermShare", "signal_class"]
