"""Anchors and what the logits make of them, against slow independent versions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.encoders.analysis.words import Words
from termweave.encoders.term_weighting import BM25, Form, anchored
from termweave.errors import ModelError
from termweave.statistics import CorpusStatistics
from tests.encoders.exact_scores import dot

STATISTICS = CorpusStatistics("words", 1000, 7.5, {"a": 900, "b": 40, "c": 1})
BM25_FORM = Form()
TERMS = st.lists(st.sampled_from(["", "a", "b", "c", "new"]), max_size=30)


def words(terms):
    nothing = np.zeros(len(terms), dtype=np.int64)
    return Words("", nothing, nothing, nothing, terms)


def slow_bm25(term, terms, statistics, k1=1.2, b=0.75):
    df = statistics.document_frequency.get(term, 0)
    idf = math.log(1 + (statistics.documents - df + 0.5) / (df + 0.5))
    held = [each for each in terms if each]
    tf = held.count(term)
    return idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(held) / statistics.average_length))


def pieces(terms):
    return np.array([-1, *range(len(terms)), -1], dtype=np.int64)


def untrained(terms, kind, form=BM25_FORM, statistics=STATISTICS):
    """The weights of a text if every logit is 0."""
    anchor = anchored(words(terms), statistics, BM25(), kind, form)
    return anchor.weights(np.zeros(len(terms) + 2, np.float32), pieces(terms), kind)


@settings(max_examples=100, deadline=None)
@given(TERMS, TERMS)
def test_untrained_is_bm25(document, query):
    weights, factors = untrained(document, "document"), untrained(query, "query")
    impacts = {term: slow_bm25(term, document, STATISTICS) for term in set(document) - {""}}
    assert weights.as_dict() == pytest.approx(impacts, rel=1e-6)
    assert factors.as_dict() == pytest.approx({term: query.count(term) for term in set(query) - {""}}, rel=1e-6)
    expected = sum(slow_bm25(term, document, STATISTICS) for term in query if term and term in document)
    assert dot(factors, weights) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("form", [Form(), Form("idf"), Form(tf_power=0.5)])
def test_par_is_what_a_document_of_average_length_with_each_word_once_scores(form):
    average = replace(STATISTICS, average_length=3.0)
    query, there = (
        untrained(["b", "c", "new", *more], kind, form, average) for kind, more in (("query", ["b"]), ("document", []))
    )
    assert query.full_match_score == pytest.approx(dot(query, there), rel=1e-6)
    assert there.full_match_score is None
    assert untrained(["b", "c"], "query", Form("none"), average).full_match_score is None


@settings(max_examples=100, deadline=None)
@given(TERMS, st.floats(0, 2))
def test_the_power_lies_between_idf_and_bm25(document, power):
    bm25, idf, found = (untrained(document, "document", form).as_dict() for form in (Form(), Form("idf"), Form(tf_power=power)))
    assert found == pytest.approx({term: idf[term] ** (1 - power) * bm25[term] ** power for term in bm25}, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(TERMS.filter(bool), st.randoms(use_true_random=False), st.integers(0, 30))
def test_trained_against_a_slow_version(terms, random, seen):
    """Some words have several pieces; the model sees the first `seen` pieces only."""
    word_of_piece = [place for place in range(len(terms)) for _ in range(random.choice([1, 1, 2, 3]))][:seen]
    logits = [random.uniform(-4, 4) for _ in word_of_piece]
    of_piece, z = np.array([-1, *word_of_piece, -1]), np.array([9.0, *logits, 9.0], dtype=np.float32)

    def softplus(best):
        return math.log1p(math.exp(best + math.log(math.e - 1)))

    of_word = list(zip(word_of_piece, logits, strict=True))
    by_word = {word: max(value for other, value in of_word if other == word) for word in word_of_piece}
    impacts, factors = {}, {}
    for term in set(terms) - {""}:
        places = [place for place, each in enumerate(terms) if each == term]
        best = [by_word[place] for place in places if place in by_word]
        impacts[term] = slow_bm25(term, terms, STATISTICS) * (softplus(max(best)) if best else 1.0)
        factors[term] = sum(softplus(by_word[place]) if place in by_word else 1.0 for place in places)
    for kind, expected in (("document", impacts), ("query", factors)):
        found = anchored(words(terms), STATISTICS, BM25(), kind).weights(z, of_piece, kind)
        assert found.as_dict() == pytest.approx(expected, rel=1e-5)
        assert found.weights.dtype == np.float32
        assert (found.weights > 0).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_a_number_is_no_unseen_word(wrong):
    anchor = anchored(words(["a", "b"]), STATISTICS, BM25(), "document")
    with pytest.raises(ModelError, match="not a number"):
        anchor.weights(np.array([0, 1, wrong, 0], np.float32), pieces(["a", "b"]), "document")


def test_features_are_idf_and_bm25():
    anchor = anchored(words(["a", "", "b"]), STATISTICS, BM25(), "document")
    features = anchor.features(np.array([-1, 0, 1, 2, 2, -1]), "document")
    assert features.shape == (6, 2)
    assert features[1].tolist() == pytest.approx(
        [STATISTICS.idf("a") / 10, slow_bm25("a", ["a", "b"], STATISTICS) / 10], rel=1e-6
    )
    assert features[[0, 2, 5]].tolist() == [[0, 0]] * 3
    assert features[3].tolist() == features[4].tolist()
    assert (anchored(words(["a"]), STATISTICS, BM25(), "query").features(np.array([0]), "query")[:, 1] == 0).all()


def test_an_empty_corpus_divides_by_nothing():
    anchor = anchored(words(["a"]), CorpusStatistics("words", 0, 0.0, {}), BM25(), "document").anchor
    assert np.isfinite(anchor).all()
    assert (anchor > 0).all()
