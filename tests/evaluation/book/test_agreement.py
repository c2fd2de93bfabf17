"""Agreement of judges against examples that were worked by hand."""

import pytest

from termweave.evaluation.book import agreement
from termweave.evaluation.book.store import BookGrade

pytest.importorskip("krippendorff", reason="the extra 'ui' is not installed")


def grades(table):
    """Judge -> grades of documents 0, 1, 2 ...; None: the judge did not see the document."""
    cells = [(judge, str(place), grade) for judge, of in table.items() for place, grade in enumerate(of)]
    return [BookGrade(judge, "q", document, grade) for judge, document, grade in cells if grade is not None]


def test_cohens_kappa_of_a_table():
    """20 yes by both, 15 no by both, 5 and 10 on which they differ: 0.4, the standard example of two readers of 50 proposals."""
    ann = [1] * 20 + [1] * 5 + [0] * 10 + [0] * 15
    bob = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    (pair,) = agreement.measure(grades({"ann": ann, "bob": bob})).pairs
    assert (pair.items, pair.kappa) == (50, pytest.approx(0.4))


def test_fleiss_kappa_of_a_table():
    """Three judges, four documents, worked by hand: observed (1 + 1/3 + 1/3 + 1)/4 = 2/3, expected (6/12)^2 + (6/12)^2 = 1/2."""
    made = agreement.measure(grades({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1], "c": [0, 1, 0, 1]}))
    assert (made.complete, made.fleiss) == (4, pytest.approx((2 / 3 - 1 / 2) / (1 - 1 / 2)))


def test_krippendorffs_alpha_counts_what_some_judges_did_not_see():
    """All agree wherever two judged: 1. One judge alone about a document changes nothing."""
    made = agreement.measure(grades({"a": [0, 1, 2, None, 3], "b": [0, 1, None, 3, None], "c": [None, 1, 2, 3, None]}))
    assert made.alpha == pytest.approx(1)
    assert (made.shared, made.complete, made.fleiss) == (4, 1, None)
    assert made.judges == {"a": 4, "b": 3, "c": 3}
    near = agreement.measure(grades({"a": [0, 1, 2, 3], "b": [1, 1, 2, 3]})).alpha
    far = agreement.measure(grades({"a": [0, 1, 2, 3], "b": [3, 1, 2, 3]})).alpha
    assert far < near < 1  # the distance of grades counts


def test_what_is_not_defined_is_none():
    same = agreement.measure(grades({"a": [1, 1], "b": [1, 1]}))
    assert (same.pairs[0].kappa, same.fleiss, same.alpha) == (None, None, None)
    alone = agreement.measure([*grades({"a": [1, 2]}), BookGrade("b", "q", "0", None)])
    assert (alone.judges, alone.pairs, alone.fleiss, alone.alpha) == ({"a": 2}, (), None, None)
