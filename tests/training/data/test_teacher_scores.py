"""Teachers against a slow version."""

import math

import numpy as np
import pytest

from termweave.records import TermWeights
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.teacher_scores import Sum, Vectors, Written, minmax
from tests.encoders.exact_scores import dot


def test_teachers():
    generator = np.random.default_rng(0)
    vectors = Vectors(generator.normal(size=(9, 4)).astype(np.float32), generator.normal(size=(3, 4)).astype(np.float32))
    weights = [TermWeights(("a", "b"), generator.random(2).astype(np.float32)) for _ in range(9)]
    asked = [TermWeights(("a",), np.array([2.0], dtype=np.float32)) for _ in range(3)]
    questions, documents = np.array([2, 0]), np.array([1, 8, 3])
    cosines = vectors.questions.astype(np.float64) @ vectors.documents.T.astype(np.float64)
    assert vectors.scores(questions, documents) == pytest.approx(cosines[questions][:, documents], abs=1e-5)
    words = np.array([[dot(query, document) for document in weights] for query in asked])
    for scaling, scale in (
        ("minmax", lambda row: (row - row.min()) / (row.max() - row.min())),
        ("zscore", lambda row: (row - row.mean()) / row.std()),
    ):
        expected = [scale(words[question]) + scale(cosines[question]) for question in questions]
        found = Sum(vectors, SparseIndex(weights), asked, scaling).scores(questions, documents)
        assert found == pytest.approx(np.array(expected)[:, documents], abs=1e-5)
    assert Written([{4: 0.5}, {}]).scores(np.array([0, 1]), np.array([4, 5])).tolist() == [
        [0.5, -math.inf],
        [-math.inf, -math.inf],
    ]


def test_a_row_of_equal_scores_tells_nothing():
    rows = np.array([[2.0, 6.0, 3.0], [4.0, 4.0, 4.0]])
    assert minmax(rows).tolist() == [[0.0, 1.0, 0.25], [0.0, 0.0, 0.0]]
    assert [minmax(row).tolist() for row in rows] == minmax(rows).tolist()
