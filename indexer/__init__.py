"""The indexer: builds, verifies, updates and publishes generations of an index. Public names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

if TYPE_CHECKING:
    from termweave.indexer.build_plan import plan
    from termweave.indexer.builder import build, up_to_date
    from termweave.indexer.job import IndexingResult
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.update_plan import LARGE_DELETION, LargeDeletion, UpdateMode, UpdatePlan
    from termweave.indexer.updater import plan_update, update
    from termweave.indexer.verification import Difference, verify, verify_against_source

__all__ = ["BuildOptions", "Difference", "IndexingResult", "LargeDeletion", "UpdateMode", "UpdatePlan"]
__all__ += ["LARGE_DELETION", "build", "plan", "plan_update", "up_to_date", "update", "verify", "verify_against_source"]

#: Where each public name lives. The command line reads the table of options without loading anything else.
_MODULES = {
    "options": ("BuildOptions",),
    "build_plan": ("plan",),
    "builder": ("build", "up_to_date"),
    "job": ("IndexingResult",),
    "update_plan": ("LARGE_DELETION", "LargeDeletion", "UpdateMode", "UpdatePlan"),
    "updater": ("plan_update", "update"),
    "verification": ("Difference", "verify", "verify_against_source"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
