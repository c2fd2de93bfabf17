"""Collection statistics: counting, idf, and the way through bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.statistics import CorpusStatistics, StatisticsCounter

TEXTS = st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=8), max_size=8)


@given(TEXTS)
def test_counts_are_those_of_a_slow_count(texts):
    counter = StatisticsCounter("a")
    for terms in texts:
        counter.add(terms)
    result = counter.result()
    assert result.documents == len(texts)
    assert result.average_length == (sum(map(len, texts)) / len(texts) if texts else 0)
    for term in {term for terms in texts for term in terms}:
        assert result.document_frequency[term] == sum(term in terms for terms in texts)


@given(TEXTS)
def test_bytes_bring_the_same_statistics_back(texts):
    counter = StatisticsCounter("a")
    for terms in texts:
        counter.add(terms)
    before = counter.result()
    after = CorpusStatistics.from_bytes(before.to_bytes())
    assert after == before
    assert after.hash == before.hash


def test_idf_is_lucenes():
    statistics = CorpusStatistics("a", 10, 3.0, {"cat": 2})
    assert statistics.idf("cat") == pytest.approx(math.log(1 + (10 - 2 + 0.5) / (2 + 0.5)))
    assert statistics.idf("unseen") == pytest.approx(math.log(1 + 10.5 / 0.5))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="not corpus statistics"):
        CorpusStatistics.from_bytes(data)
