"""Evaluation: measures of runs, significance tests, gates and tuning.

Names are loaded when they are first used: the pages of `termweave serve` start without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

_HOME = {
    "MEASURES": "measures",
    "Experiment": "experiment",
    "Row": "experiment",
    "System": "systems",
    "TuningReport": "tuning.tune",
    "evaluate": "experiment",
    "gates": "gates",
    "holm": "significance",
    "per_query": "measures",
    "randomisation_test": "significance",
    "tune": "tuning.tune",
}

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

if TYPE_CHECKING:
    from termweave.evaluation import gates
    from termweave.evaluation.experiment import Experiment, Row, evaluate
    from termweave.evaluation.measures import MEASURES, per_query
    from termweave.evaluation.significance import holm, randomisation_test
    from termweave.evaluation.systems import System
    from termweave.evaluation.tuning.tune import TuningReport, tune

__getattr__, __dir__ = lazy_names(__name__, _HOME)
