"""Teachers against a slow version."""

import math

import numpy as np
import pytest

from termweave.errors import InputError
from termweave.evaluation import runs
from termweave.records import Run, TermWeights
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.teacher_scores import Sum, Vectors, Written, minmax, scored
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


def test_a_run_that_evaluate_saved_is_read_as_it_was(tmp_path):
    """Ids with blanks and "%" are percent-encoded there."""
    saved = {"how to reset": {"guide/my file.md": 2.0, "100%": 1.0}, "=q": {"d1": 0.5}}
    runs.write(Run("hybrid", saved), tmp_path / "hybrid.trec")
    rows = [(query, document, score) for query, ranked in saved.items() for document, score in ranked.items()]
    assert list(scored(tmp_path / "hybrid.trec")) == rows
    table = tmp_path / "scores.tsv"
    table.write_text("\n".join(f"{query}\t{document}\t{score}" for query, document, score in rows) + "\n\n")
    assert list(scored(table)) == rows


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("q\td\t1\nq\td2\tmany\n", "line 2 is not a score: 'q"),
        ("q\td\tinf\n", "line 1 is not a score"),
        ("q\td\t1\nq Q0 d 1 0.5 x\n", "line 2 is not a score"),
        ("q Q0 d 1 0.5 x\nq d 1\n", "line 2: not a line of a run"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, sentence):
    (tmp_path / "scores").write_text(content)
    with pytest.raises(InputError, match=sentence):
        list(scored(tmp_path / "scores"))
