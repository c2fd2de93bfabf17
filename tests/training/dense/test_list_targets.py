"""Candidate lists: exact search against a full sort, judged documents, false-negative margin, run files."""

from types import SimpleNamespace

import numpy as np
import pytest

from termweave.errors import InputError
from termweave.training import dev_measure
from termweave.training.data import teacher_scores
from termweave.training.data.pairs import Pairs
from termweave.training.dense.list_targets import NOTHING, from_run, hybrid_targets, nearest, with_relevant


def units(generator, count, width=8):
    vectors = generator.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [10, 16_000_000])
def test_nearest_is_the_full_sort_with_ties_by_index(monkeypatch, block):
    monkeypatch.setattr(dev_measure, "_BLOCK", block)  # one question at a time, or all
    generator = np.random.default_rng(0)
    queries, documents = units(generator, 7), units(generator, 40)
    documents[30] = documents[3]  # a tie
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
    for depth in (1, 5, 40, 99):
        np.testing.assert_array_equal(nearest(queries, documents, depth), order[:, :depth])


def test_a_model_that_has_diverged_ranks_nothing():
    """Its next loss ends the run, with advice."""
    documents = np.ones((30, 4), np.float32)
    assert [len(places) for places, _ in dev_measure.rankings(np.full((2, 4), np.nan, np.float32), documents, 10)] == [0, 0]
    documents[5:] = np.nan
    ((places, _),) = dev_measure.rankings(np.ones((1, 4), np.float32), documents, 10)
    assert places.tolist() == [0, 1, 2, 3, 4]


def test_judged_documents_take_the_last_places():
    lists = np.array([[5, 6, 7], [8, 1, NOTHING], [2, 3, 4]])
    relevant = [frozenset({9}), frozenset({1, 2}), frozenset({4, 0, 11})]
    found = with_relevant(lists, relevant)
    assert found.tolist() == [[5, 6, 9], [8, 1, 2], [4, 0, 11]]
    wide = with_relevant(np.array([[5]]), [frozenset({1, 2})])
    assert wide.tolist() == [[1, 2]]


def test_other_views_of_a_question_are_no_candidates_of_hybrid_search_in_a_small_corpus(monkeypatch):
    pairs = Pairs(["q"], [frozenset({0})], spared=[frozenset({2})])
    teacher = SimpleNamespace(scores=lambda *_: np.array([[0.5, 0.4, 0.9, 0.6]]))
    monkeypatch.setattr(teacher_scores, "vector_teacher", lambda *_: teacher)
    data = {
        "inputs": SimpleNamespace(pairs=pairs, documents=range(4)),
        "settings": SimpleNamespace(candidates=200),
        "setup": None,
    }
    made = hybrid_targets(SimpleNamespace(**data, document_vectors=np.eye(4), question_vectors=np.eye(1, 4)))
    assert made.candidates.tolist() == [[3, 0, 1, NOTHING]]
    assert made.targets[0].tolist() == pytest.approx([0.665, 0.245, 0.09, 0], abs=0.001)


def test_a_run_file_gives_the_lists(tmp_path):
    run = tmp_path / "run"
    run.write_text("q1 Q0 d2 1 9.0 x\nq1 Q0 d0 2 8.5 x\nq1 Q0 unknown 3 8 x\nq2 Q0 d1 1 1.0 x\nby-text Q0 d0 1 1.0 x\n")
    queries = {"q1": "one", "q2": "two", "q3": "one", "q4": "by-text", "q5": "five"}  # q1 and q3 have one text
    documents = {"d0": 0, "d1": 1, "d2": 2}
    found = from_run(run, ["two", "one", "by-text", "five"], queries, documents, 2)
    assert found.tolist() == [[1, NOTHING], [2, 0], [0, NOTHING], [NOTHING, NOTHING]]
    with pytest.raises(InputError, match="names none of the 1 question"):
        from_run(run, ["other"], queries, documents, 2)
