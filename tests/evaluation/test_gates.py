"""Gates and run files without a server."""

from __future__ import annotations

import numpy as np
import pytest

from termweave.errors import InputError, UsageError
from termweave.evaluation import gates, runs
from termweave.records import Run


@pytest.mark.parametrize(
    ("text", "system", "measure", "least", "margin", "run"),
    [
        ("nDCG@10>=.4", None, "nDCG@10", 0.4, None, None),
        ("nDCG@10 >= 0.40", None, "nDCG@10", 0.4, None, None),
        ("hybrid+rNN:MRR@10>=1", "hybrid+rNN", "MRR@10", 1.0, None, None),
        ("recall@100 within .01 of runs/a b.trec", None, "recall@100", None, 0.01, "runs/a b.trec"),
    ],
)
def test_requirements_are_read(text, system, measure, least, margin, run):
    gate = gates.parse(text)
    assert (gate.system, gate.measure, gate.least, gate.margin) == (system, measure, least, margin)
    assert (str(gate.run) if gate.run else None) == run


@pytest.mark.parametrize(
    "text", ["", "nDCG>=.4", "nDCG@10>.4", "nDCG@10>=", "nDCG@10 within of RUN", "nDCG@10 within .1 of", "nDCG@10>=-1"]
)
def test_what_is_no_requirement_is_refused(text):
    with pytest.raises(UsageError, match="not a requirement"):
        gates.parse(text)


def test_the_interval_covers_the_mean_and_narrows_with_queries():
    random = np.random.default_rng(0)
    few, many = random.normal(0, 0.1, 20), random.normal(0, 0.1, 2000)
    (low, high), (lower, upper) = gates.interval(few), gates.interval(many)
    assert low < few.mean() < high
    assert upper - lower < (high - low) / 5
    spread = many.std() / np.sqrt(2000)
    assert (lower, upper) == pytest.approx((many.mean() - 1.96 * spread, many.mean() + 1.96 * spread), abs=spread / 3)


def test_runs_come_back_from_their_files(tmp_path):
    run = Run("hybrid", {"q1": {"a": 1.25, "b c": 0.5}, "q2": {"d": -3.0}})
    runs.write(run, tmp_path / "x.trec")
    assert runs.read(tmp_path / "x.trec") == Run("hybrid", {"q1": {"a": 1.25, "b_c": 0.5}, "q2": {"d": -3.0}})
    (tmp_path / "x.trec").write_text("q1 Q0 a 1 0.5 x\n\nq1 a\n")
    with pytest.raises(InputError, match="line 3"):
        runs.read(tmp_path / "x.trec")
    with pytest.raises(UsageError, match="cannot be read"):
        runs.read(tmp_path / "nothing.trec")
