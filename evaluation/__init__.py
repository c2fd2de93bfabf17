"""Evaluation: runs to figures, with the test that says whether a difference is one."""

from __future__ import annotations

from termweave.evaluation import gates
from termweave.evaluation.experiment import Experiment, Row, evaluate
from termweave.evaluation.measures import MEASURES, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.evaluation.systems import System
from termweave.evaluation.tuning import Report, tune

__all__ = [
    "MEASURES",
    "Experiment",
    "Report",
    "Row",
    "System",
    "evaluate",
    "gates",
    "holm",
    "per_query",
    "randomisation_test",
    "tune",
]
