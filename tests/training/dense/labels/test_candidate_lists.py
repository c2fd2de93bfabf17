"""Candidate lists: exact search against a full sort, judged documents, false-negative margin, run files."""

import numpy as np
import pytest

from termweave.errors import InputError
from termweave.records import TermWeights
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.dense.labels import candidate_lists
from termweave.training.dense.labels.candidate_lists import NOTHING, RankedLists, by_bm25, from_run, nearest


def units(generator, count, width=8):
    vectors = generator.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [10, 16_000_000])
def test_nearest_is_the_full_sort_with_ties_by_index(monkeypatch, block):
    monkeypatch.setattr(candidate_lists, "_BLOCK", block)  # one question at a time, or all
    generator = np.random.default_rng(0)
    queries, documents = units(generator, 7), units(generator, 40)
    documents[30] = documents[3]  # a tie
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
    for depth in (1, 5, 40, 99):
        np.testing.assert_array_equal(nearest(queries, documents, depth).documents, order[:, :depth])


def test_judged_documents_take_the_last_places():
    lists = RankedLists(np.array([[5, 6, 7], [8, 1, NOTHING], [2, 3, 4]]))
    relevant = [frozenset({9}), frozenset({1, 2}), frozenset({4, 0, 11})]
    found = lists.with_relevant(relevant)
    assert found.documents.tolist() == [[5, 6, 9], [8, 1, 2], [4, 0, 11]]
    wide = RankedLists(np.array([[5]])).with_relevant([frozenset({1, 2})])
    assert wide.documents.tolist() == [[1, 2]]
    assert found.present.all()


def test_negatives_leave_out_what_is_known():
    documents = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.99, 0.141], [0.0, 1.0]], np.float32)
    queries = np.array([[1.0, 0.0]], np.float32)
    lists = nearest(queries, documents, 5)
    assert [each.tolist() for each in lists.negatives([frozenset({1, 4})])] == [[0, 3, 2]]


def weights(*terms):
    return TermWeights(terms, np.ones(len(terms), np.float32))


def test_bm25_lists_hold_documents_that_share_a_word():
    index = SparseIndex([weights("cat"), weights("dog"), weights("cat", "dog")])
    assert by_bm25(index, [weights("cat", "dog"), weights("bird")], 3).documents.tolist() == [[2, 0, 1], [NOTHING] * 3]


def test_a_run_file_gives_the_lists(tmp_path):
    run = tmp_path / "run"
    run.write_text("q1 Q0 d2 1 9.0 x\nq1 Q0 d0 2 8.5 x\nq1 Q0 unknown 3 8 x\nq2 Q0 d1 1 1.0 x\nby-text Q0 d0 1 1.0 x\n")
    queries = {"q1": "one", "q2": "two", "q3": "one", "q4": "by-text", "q5": "five"}  # q1 and q3 have one text
    documents = {"d0": 0, "d1": 1, "d2": 2}
    found = from_run(run, ["two", "one", "by-text", "five"], queries, documents, 2)
    assert found.documents.tolist() == [[1, NOTHING], [2, 0], [0, NOTHING], [NOTHING, NOTHING]]
    with pytest.raises(InputError, match="names no training question"):
        from_run(run, ["other"], queries, documents, 2)
