"""Evaluation: measures of runs, significance tests, gates and tuning.

Names are loaded when they are first used: the pages of `termweave serve` start without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "MEASURES": "measures",
    "Experiment": "experiment",
    "Row": "experiment",
    "System": "systems",
    "TuningReport": "tuning.tune",
    "evaluate": "experiment",
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


def __getattr__(name: str) -> Any:
    if name == "gates":
        return import_module("termweave.evaluation.gates")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'termweave.evaluation' has no attribute {name!r}")
    return getattr(import_module(f"termweave.evaluation.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
