"""Rates of documents: the definition on a small log, what is left out, and the times of a log."""

from math import inf

import pytest

from termweave.corpora.behaviour import ubi
from termweave.corpora.behaviour.click_model import rates


def search(number, query, shown, **more):
    return {"query_id": f"s{number}", "user_query": query, "query_response_hit_ids": shown, **more}


def event(number, document, action="click", **more):
    return {"query_id": f"s{number}", "action_name": action, "event_attributes": {"object": {"object_id": document}}, **more}


def test_the_definition_by_hand():
    searches = [
        search(1, "red", ["a", "b"]),
        search(2, "red", ["a", "c"]),
        search(3, "blue", ["b", "a"]),
        search(4, "Blue ", ["b", "c"]),
    ]
    events = [event(1, "a"), event(3, "a"), event(3, "a", "purchase"), event(4, "b", "buy")]
    log = ubi.behaviour_of(searches, events)
    # The first position: 2 clicks and 1 purchase in 4 lists; the second: 1 click, 1 purchase.
    found = rates(log)
    assert found["a"] == pytest.approx(((2 + 1) / (0.5 + 0.5 + 0.25 + 1), (1 + 1) / (0.25 * 3 + 1)))
    assert found["b"] == pytest.approx(((1 + 1) / (0.25 + 0.5 + 0.5 + 1), (1 + 1) / (0.25 * 3 + 1)))
    assert found["c"] == pytest.approx((1 / (0.25 * 2 + 1), 1 / (0.25 * 2 + 1)))
    # Without "blue" in any writing only the first two lists are left.
    assert rates(log, ["BLUE"]) == rates(ubi.behaviour_of(searches[:2], events[:1]))
    assert set(rates(log, ["red", "blue"]).values()) <= {(1.0, 1.0)}
    assert rates(ubi.behaviour_of([], [])) == {}


def test_the_times_of_a_log():
    searches = [search(1, "red", ["a"], timestamp="2025-03-03T00:00:10.500Z")]
    assert (log := ubi.behaviour_of(searches, [event(1, "a", timestamp=1740960000000)])).first == 1740960000
    assert log.last == 1740960010.5
    unknown = ubi.behaviour_of(searches, [event(1, "a", timestamp="yesterday")])
    assert (unknown.first, unknown.last) == (-inf, inf)
