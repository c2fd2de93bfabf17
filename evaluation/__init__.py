"""Evaluation: measures of runs, significance tests, gates and tuning.

Names are loaded when they are first used: the pages of `termweave serve` start without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

__all__ = [
    "MEASURES",
    "Experiment",
    "Row",
    "System",
    "TuningReport",
    "evaluate",
    "holm",
    "per_query",
    "randomisation_test",
    "tune",
]

_HOME = dict.fromkeys(("MEASURES", "holm", "per_query", "randomisation_test"), "measures")
_HOME |= dict.fromkeys(("Experiment", "Row", "evaluate"), "experiment") | {"System": "systems"}
_HOME |= dict.fromkeys(("TuningReport", "tune"), "tuning.tune")

if TYPE_CHECKING:
    from termweave.evaluation.experiment import Experiment, Row, evaluate
    from termweave.evaluation.measures import MEASURES, holm, per_query, randomisation_test
    from termweave.evaluation.systems import System
    from termweave.evaluation.tuning.tune import TuningReport, tune

__getattr__, __dir__ = lazy_names(__name__, _HOME)
