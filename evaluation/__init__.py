"""Evaluation: measures of runs, significance tests, gates and tuning."""

from __future__ import annotations

from termweave.evaluation import gates
from termweave.evaluation.experiment import Experiment, Row, evaluate
from termweave.evaluation.measures import MEASURES, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.evaluation.systems import System
from termweave.evaluation.tuning.tune import TuningReport, tune

__all__ = [
    "MEASURES",
    "Experiment",
    "Row",
    "System",
    "TuningReport",
    "evaluate",
    "gates",
    "holm",
    "per_query",
    "randomisation_test",
    "tune",
]
