"""Collection statistics: counting, idf, and the way through bytes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.statistics import CorpusStatistics, StatisticsCounter

TEXTS = st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), max_size=8), max_size=8)


def counter_of(documents):
    counter = StatisticsCounter("words")
    for terms in documents:
        counter.add(terms)
    return counter


@given(TEXTS)
def test_counts_are_those_of_a_slow_count_and_survive_as_bytes(texts):
    result = counter_of(texts).result()
    again = CorpusStatistics.from_bytes(result.to_bytes())
    assert (again, again.hash) == (result, result.hash)
    assert result.documents == len(texts)
    assert result.average_length == (sum(map(len, texts)) / len(texts) if texts else 0)
    for term in {term for terms in texts for term in terms}:
        assert result.document_frequency[term] == sum(term in terms for terms in texts)


def test_idf_is_lucenes():
    statistics = CorpusStatistics("a", 10, 3.0, {"cat": 2})
    assert statistics.idf("cat") == pytest.approx(math.log(1 + (10 - 2 + 0.5) / (2 + 0.5)))
    assert statistics.idf("unseen") == pytest.approx(math.log(1 + 10.5 / 0.5))


@pytest.mark.parametrize("data", [b"", b"nonsense", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="not corpus statistics"):
        CorpusStatistics.from_bytes(data)


def test_drift_is_none_of_the_same_corpus_and_grows_with_another():
    counted = counter_of([["a", "b"], ["a", "c"], ["d"], ["d", "e"]]).result()
    same = counted.drift(counted)
    assert (same.moved, same.unseen, same.length, same.large) == (0.0, 0.0, 1.0, False)
    now = counter_of([["x", "y", "x", "a"], ["x", "a"], ["x", "b"], ["x", "d", "d", "d"]]).result()
    drift = counted.drift(now)
    # By document: x 4, y 1 were never counted; a 2, b 1, d 1 stay within .5 of their idf, d moves (2 of 4 -> 1 of 4).
    moved = {term for term in "xyabd" if abs(counted.idf(term) - now.idf(term)) > 0.5}
    assert {"x"} <= moved <= set("xybd")
    assert drift.moved == pytest.approx(sum(now.document_frequency[term] for term in moved) / 9)
    assert (drift.unseen, drift.length, drift.large) == (pytest.approx(5 / 9), pytest.approx(3.0 / 1.75), True)
    assert "56% were never counted, and its documents are 1.71 times as long" in str(drift)
    with pytest.raises(ValueError, match=r"'words'.*'pieces'"):  # the analyses must be the same
        StatisticsCounter("pieces").result().drift(counted)


def test_of_a_sample_only_terms_that_it_knows_are_looked_at():
    documents = [["all", f"u{number % 50}", f"v{number}"] for number in range(400)]
    counted, part = counter_of(documents).result(), counter_of(documents[:20]).result()
    assert counted.drift(part).large  # 20 of the 50 u, each once, seem as rare as the v
    known = counted.drift(part, least=16)
    assert (known.moved, known.large) == (0.0, False)
    moved = counter_of([["all", "other"]] * 20).result()
    assert counted.drift(moved, least=16).moved == 0.5
    assert counted.drift(moved, least=21).moved == 0.0
