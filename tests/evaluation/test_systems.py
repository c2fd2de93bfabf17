"""What a table compares, and with what."""

from __future__ import annotations

import numpy as np
import pytest

from termweave.errors import UsageError
from termweave.evaluation import runs, systems
from termweave.evaluation.measures import judged_share
from termweave.records import Run

SIGNALS = ["dense", "lexical", "weights"]


def names(found):
    return [system.name for system in found]


def test_the_default_table_begins_with_bm25_wherever_the_index_has_it():
    assert names(systems.default_systems(SIGNALS)) == ["BM25", "dense", "weights", "hybrid", "hybrid+rNN"]
    assert names(systems.default_systems(["lexical"])) == ["BM25"]
    assert names(systems.default_systems(["weights"])) == ["weights"]


def test_a_grid_has_every_mode_with_every_reranker_once():
    found = systems.grid(["dense", "weights:3,dense:1", "dense"], ["none", "rnn"], SIGNALS)
    assert names(found) == ["dense", "dense+rNN", "weights:3,dense:1", "weights:3,dense:1+rNN"]
    assert [system.reranker for system in found] == ["none", "rnn", "none", "rnn"]
    assert names(systems.grid([], ["rnn"], SIGNALS)) == ["BM25+rNN", "dense+rNN", "weights+rNN", "hybrid+rNN"]
    assert systems.grid([], [], SIGNALS) == systems.default_systems(SIGNALS)
    with pytest.raises(UsageError, match="no signal 'magic'"):
        systems.grid(["magic"], [], SIGNALS)


@pytest.mark.parametrize(
    ("asked", "baseline", "added"),
    [
        (None, "BM25", []),
        ("hybrid", "hybrid", []),
        ("lexical", "BM25", []),
        ("HYBRID+rnn", "hybrid+rNN", []),
        ("dense:2,weights:1", "dense:2,weights:1", ["dense:2,weights:1"]),
    ],
)
def test_the_baseline_is_a_row_that_is_added_where_it_is_missing(asked, baseline, added):
    table = systems.default_systems(SIGNALS)
    found, against = systems.with_baseline(table, asked, SIGNALS)
    assert against == baseline
    assert names(found) == added + names(table)


def test_without_bm25_the_first_row_is_the_baseline():
    assert systems.with_baseline(systems.grid(["dense", "weights"], [], SIGNALS), None, SIGNALS)[1] == "dense"


def test_a_saved_run_is_a_baseline_and_what_is_neither_is_refused(tmp_path):
    table = systems.default_systems(SIGNALS)
    runs.write(Run("old", {"q": {"a": 1.0}}), tmp_path / "old")
    assert systems.with_baseline(table, str(tmp_path / "old"), SIGNALS) == (table, Run("old", {"q": {"a": 1.0}}))
    with pytest.raises(UsageError, match="cannot be read"):
        systems.with_baseline(table, str(tmp_path / "missing.trec"), SIGNALS)
    with pytest.raises(UsageError, match="no signal 'magic'"):
        systems.with_baseline(table, "magic", SIGNALS)


def test_the_judged_share_counts_zeros_and_what_is_missing():
    qrels = {"q1": {"a": 0, "b": 2}, "q2": {"c": 1}, "q3": {"d": 1}}
    run = Run("x", {"q1": {"a": 3.0, "x": 2.0, "b": 1.0, "y": 0.5}, "q2": {}})
    np.testing.assert_allclose(judged_share(run, qrels, ["q1", "q2", "q3"]), [0.5, 0, 0])
    np.testing.assert_allclose(judged_share(run, qrels, ["q1"], depth=1), [1.0])
