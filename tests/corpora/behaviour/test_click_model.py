"""The click model finds the propensities and attractions with which a log was drawn, and what cannot be told it says."""

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
        searches.append({"query_id": f"s{number}", "user_query": f" query  {query}", "query_response_hit_ids": shown})
        clicked = random.random(5) < EXAMINED * attraction[query][order]
        events += [click(f"s{number}", f"d{query}-{each}", place) for place, each in enumerate(order) if clicked[place]]
    return ubi.behaviour_of(searches, events), attraction


def click(search, document, place=None, action="click"):
    attributes = {"object": {"object_id": document}, **({"position": {"ordinal": place}} if place is not None else {})}
    return {"query_id": search, "action_name": action, "event_attributes": attributes}


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
    weighted, plain = log.corrected_clicks(model), log.clicks()
    assert weighted.sum() > 1.3 * plain.sum()


def test_a_biased_ranking_misleads_counts_and_not_the_model():
    """A good document that mostly stands low: its raw counts are below those of a mediocre one on top."""
    random = np.random.default_rng(1)
    searches, events = [], []
    for number in range(6000):
        order = ["poor", "x", "y", "good"] if random.random() < 0.9 else ["good", "y", "x", "poor"]
        searches.append({"query_id": str(number), "user_query": "q", "query_response_hit_ids": order})
        chances = {"poor": 0.3, "good": 0.8, "x": 0.1, "y": 0.1}
        events += [
            click(str(number), each) for place, each in enumerate(order) if random.random() < EXAMINED[place] * chances[each]
        ]
    log = ubi.behaviour_of(searches, events)
    place = {document: number for number, (_, document) in enumerate(log.pairs)}
    model, raw = log.model(corrected=True), log.model(corrected=False)
    assert model.attractive[place["good"]] > 2 * model.attractive[place["poor"]]
    assert raw.attractive[place["good"]] < 1.5 * raw.attractive[place["poor"]]
    assert log.qrels(model)["q"]["good"] > log.qrels(model)["q"]["poor"]


def test_a_log_that_never_moves_a_document_says_so():
    log, _ = drawn(shuffled=False, lists=400)
    model = log.model(corrected=True)
    assert model.moved == 0
    assert "mostly the assumption 1 / position" in log.remarks(model, corrected=True)[0]
    assert log.remarks(log.model(corrected=False), corrected=False) == []


def test_a_log_as_logs_are():
    searches = [
        {"query_id": "a", "user_query": "red  sofa", "query_response_hit_ids": ["1", "2", 3]},
        {"query_id": "b", "user_query": "red sofa"},
        {"query_id": "c", "user_query": None, "query_response_hit_ids": ["1"]},
        {"query_id": "d", "user_query": "one", "query_response_hit_ids": "9"},
        {"user_query": "no id"},
    ]
    events = [
        click("a", "2"), click("a", "2"), click("a", "2", action="purchase"), click("a", "3"), click("a", "8"), click("a", "1", action="hover"),
        click("b", "2", 5, action="impression"), click("b", "7"), click("b", "7", 1), click("gone", "1"), {"action_name": "click", "query_id": "a"}, {},
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
