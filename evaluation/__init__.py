"""Evaluation: runs to figures, with the test that says whether a difference is one."""

from __future__ import annotations

from termweave.evaluation import gates
from termweave.evaluation.experiment import Experiment, Row, evaluate
from termweave.evaluation.measures import MEASURES, per_query
from termweave.evaluation.significance import holm, randomisation_test
from termweave.evaluation.systems import System

__all__ = ["MEASURES", "Experiment", "Row", "System", "evaluate", "gates", "holm", "per_query", "randomisation_test"]
