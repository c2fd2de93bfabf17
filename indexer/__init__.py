"""The indexer: documents in, a verified and published generation out."""

from __future__ import annotations

from termweave.indexer.building import Built, NotPublished, build, up_to_date
from termweave.indexer.plan import Options, Plan, plan
from termweave.indexer.updating import Updated, update
from termweave.indexer.verification import Difference, verify, verify_against_source

__all__ = [
    "Built",
    "Difference",
    "NotPublished",
    "Options",
    "Plan",
    "Updated",
    "build",
    "plan",
    "up_to_date",
    "update",
    "verify",
    "verify_against_source",
]
