"""The click model finds the propensities and attractions with which a log was drawn; rates of documents, and the times of a log."""

from math import inf

import numpy as np
import pytest

from termweave.corpora.behaviour import click_model, ubi

EXAMINED = np.array([1.0, 0.7, 0.5, 0.35, 0.2])


def drawn(*, shuffled, lists=4000, queries=8, seed=0):
    """A log of lists of five documents; each query has its own documents, of attractions .05 to .8."""
    random = np.random.default_rng(seed)
    attraction = random.permuted(np.tile([0.05, 0.2, 0.4, 0.6, 0.8], (queries, 1)), axis=1)
    searches, events = [], []
    for number in range(lists):
        query = number % queries
        order = random.permutation(5) if shuffled else np.arange(5)
        shown = [f"d{query}-{each}" for each in order]
        searches.append(search(number, f" query  {query}", shown))
        clicked = random.random(5) < EXAMINED * attraction[query][order]
        events += [event(number, f"d{query}-{each}", place) for place, each in enumerate(order) if clicked[place]]
    return ubi.behaviour_of(searches, events), attraction


def search(number, query, shown, **more):
    return {"query_id": f"s{number}", "user_query": query, "query_response_hit_ids": shown, **more}


def event(number, document, place=None, action="click", **more):
    attributes = {"object": {"object_id": document}, **({"position": {"ordinal": place}} if place is not None else {})}
    return {"query_id": f"s{number}", "action_name": action, "event_attributes": attributes, **more}


def test_it_finds_what_the_log_was_drawn_with():
    log, attraction = drawn(shuffled=True)
    model = log.model(corrected=True)
    assert model.moved == 40
    assert model.examined == pytest.approx(EXAMINED, abs=0.06)
    found = {pair: model.attractive[number] for number, pair in enumerate(log.pairs)}
    pairs = [(query, each) for query in range(8) for each in range(5)]
    assert max(abs(found[f"query {query}", f"d{query}-{each}"] - attraction[query][each]) for query, each in pairs) < 0.12
    raw = log.model(corrected=False)
    assert raw.attractive.max() < 0.6  # half of the clicks never come
    assert log.clicks(model).sum() > 1.3 * log.clicks(raw).sum()
    assert {log.qrels(model)["query 0"][f"d0-{each}"] for each in range(5) if attraction[0][each] == 0.8} == {3}


def test_a_log_that_never_moves_a_document_says_so():
    log, _ = drawn(shuffled=False, lists=400)
    model = log.model(corrected=True)
    assert model.moved == 0
    assert "mostly the assumption 1 / position" in log.remarks(model, corrected=True)[0]
    assert log.remarks(log.model(corrected=False), corrected=False) == []


def test_a_log_as_logs_are():
    searches = [
        search(1, "red  sofa", ["1", "2", 3]),
        {"query_id": "s2", "user_query": "red sofa"},
        search(3, None, ["1"]),
        search(4, "one", "9"),
        {"user_query": "no id"},
    ]
    events = [
        event(1, "2"), event(1, "2"), event(1, "2", action="purchase"), event(1, "3"), event(1, "8"), event(1, "1", action="hover"),
        event(2, "2", 5, action="impression"), event(2, "7"), event(2, "7", 1), event(9, "1"), {"action_name": "click", "query_id": "s1"}, {},
    ]  # fmt: skip
    log = ubi.behaviour_of(searches, events)
    shown = log.impressions
    rows = {
        (*log.pairs[pair], int(place)): (count, clicks)
        for pair, place, count, clicks in zip(shown.pair, shown.position, shown.shown, shown.clicked, strict=True)
    }
    assert rows == {
        ("red sofa", "1", 0): (1, 0), ("red sofa", "2", 1): (1, 1), ("red sofa", "3", 2): (1, 1), ("red sofa", "2", 4): (1, 0),
        ("red sofa", "7", 0): (1, 1), ("one", "9", 0): (1, 0),
    }  # fmt: skip
    assert (log.unplaced, log.lost) == (1, 1)
    assert set(log.qrels(log.model(corrected=False))) == {"red sofa"}
    assert log.qrels(log.model(corrected=False))["red sofa"] == {"1": 0, "2": 2, "3": 3, "7": 3}


def test_an_empty_log_has_a_model():
    empty = ubi.behaviour_of([], [])
    assert len(click_model.fit(empty.impressions).examined) == len(click_model.raw(empty.impressions).attractive) == 0


def test_rates_of_documents_by_hand():
    lists = [("red", "ab"), ("red", "ac"), ("blue", "ba"), ("Blue ", "bc")]
    searches = [search(number, query, list(shown)) for number, (query, shown) in enumerate(lists, 1)]
    events = [event(1, "a"), event(3, "a"), event(3, "a", action="purchase"), event(4, "b", action="buy")]
    log = ubi.behaviour_of(searches, events)
    # The first position: 2 clicks and 1 purchase in 4 lists; the second: 1 click, 1 purchase.
    found = click_model.rates(log)
    assert found["a"] == pytest.approx(((2 + 1) / (0.5 + 0.5 + 0.25 + 1), (1 + 1) / (0.25 * 3 + 1)))
    assert found["b"] == pytest.approx(((1 + 1) / (0.25 + 0.5 + 0.5 + 1), (1 + 1) / (0.25 * 3 + 1)))
    assert found["c"] == pytest.approx((1 / (0.25 * 2 + 1), 1 / (0.25 * 2 + 1)))
    # Without "blue" in any writing only the first two lists are left.
    assert click_model.rates(log, ["BLUE"]) == click_model.rates(ubi.behaviour_of(searches[:2], events[:1]))
    assert set(click_model.rates(log, ["red", "blue"]).values()) <= {(1.0, 1.0)}
    assert click_model.rates(ubi.behaviour_of([], [])) == {}


def test_the_times_of_a_log():
    searches = [search(1, "red", ["a"], timestamp="2025-03-03T00:00:10.500Z")]
    assert (log := ubi.behaviour_of(searches, [event(1, "a", timestamp=1740960000000)])).first == 1740960000
    assert log.last == 1740960010.5
    unknown = ubi.behaviour_of(searches, [event(1, "a", timestamp="yesterday")])
    assert (unknown.first, unknown.last) == (-inf, inf)
