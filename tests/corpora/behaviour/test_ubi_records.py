"""Records as OpenSearch's plugin, its collector, its sample data and earlier versions of the schema write them."""

import json

import pytest

from termweave.corpora.behaviour import ubi
from termweave.corpora.behaviour.ubi import EventRecord, event_record, search_record

#: The plugin's record of a search: the user's query, the ids in order, and the request as text.
SEARCH = {
    "timestamp": "2025-03-03T16:47:44.907Z",
    "query_id": "s1",
    "query_response_id": "r1",
    "query_response_hit_ids": ["B07", "B01", "B08"],
    "client_id": "CLIENT-4683",
    "application": "Chorus",
    "user_query": "wireless  earbuds",
    "query_attributes": {},
    "query": '{"from":0,"size":3,"query":{"match":{"title":{"query":"wireless earbuds"}}},"ext":{"ubi":{"object_id_field":"asin"}}}',
}
#: The event of a collector.
PLACE = {"object": {"object_id": "B01", "object_id_field": "asin", "description": "Earbud"}, "position": {"ordinal": 8}}
EVENT = {
    "application": "Chorus", "action_name": "impression", "query_id": "s1", "session_id": "SESSION-880a", "client_id": "CLIENT-4683", "user_id": "",
    "timestamp": "2025-03-03T16:47:46.044Z", "message_type": "IMPRESSION", "message": "impression made on doc position 8",
    "event_attributes": PLACE, "user_query": "wireless earbuds",
}  # fmt: skip
CLIENT = (0, "CLIENT-4683")


def event(action="click", attributes=None, **changed):
    return {**EVENT, "action_name": action, "event_attributes": attributes or EVENT["event_attributes"], **changed}


def placed(log):
    """(query, document, position) -> (impressions, clicks)."""
    rows = log.impressions
    return {
        (*log.pairs[pair], int(place)): (int(shown), int(clicked))
        for pair, place, shown, clicked in zip(rows.pair, rows.position, rows.shown, rows.clicked, strict=True)
    }


def test_a_search_of_the_plugin():
    assert search_record(SEARCH).shown == {"B07": 0, "B01": 1, "B08": 2}
    assert search_record(SEARCH).query == "wireless earbuds"
    assert search_record({**SEARCH, "user_query": {"text": "earbuds"}}).query == "earbuds"
    assert search_record({**SEARCH, "user_query": "caf\u0065\u0301\u200b  bar"}).query == "caf\u00e9 bar"
    for name in ("query_response_object_ids", "query_response_objects_ids"):  # earlier versions
        assert search_record({**SEARCH, name: ["B07"], "query_response_hit_ids": None}).shown == {"B07": 0}
    assert search_record({**SEARCH, "query_response_hit_ids": ["a", None, 7]}).shown == {"a": 0, "7": 2}
    for without in ({"query_id": None}, {"user_query": None}, {"user_query": " "}):
        assert search_record({**SEARCH, **without}) is None


def test_pages_of_one_search_follow_each_other():
    second = {**SEARCH, "query_response_hit_ids": ["B05", "B07"], "query": SEARCH["query"].replace('"from":0', '"from":3')}
    log = ubi.behaviour_of([second, SEARCH], [event()])
    assert placed(log) == {
        ("wireless earbuds", "B07", 4): (1, 0),  # on both pages; the page that was logged first counts
        ("wireless earbuds", "B01", 1): (1, 1),
        ("wireless earbuds", "B08", 2): (1, 0),
        ("wireless earbuds", "B05", 3): (1, 0),
    }


@pytest.mark.parametrize("extension", [{"ubi": {"object_id_field": None}}, {"object_id_field": ""}])
def test_lucenes_document_numbers_are_no_ids(extension):
    """The plugin logs them if the request names no field; the impressions say then what was shown."""
    search = {**SEARCH, "query_response_hit_ids": ["3", "7"], "query": json.dumps({"ext": extension})}
    log = ubi.behaviour_of([search], [event("impression"), event("click")])
    assert placed(log) == {("wireless earbuds", "B01", 7): (1, 1)}
    assert "1 list of shown documents left out" in log.remarks(log.model(corrected=False), corrected=False)[0]


def placed_at(position, object_id="9"):
    return {"object": {"object_id": object_id}, "position": position}


@pytest.mark.parametrize(
    ("attributes", "ordinal"),
    [
        (placed_at({"ordinal": 2}), 2),
        (placed_at({"ordinal": {"index": 2}}, object_id=9), 2),  # versions 1.0 to 1.3 of the schema
        ({"object.object_id": "9", "position.ordinal": 2.0}, 2),
        (placed_at({"ordinal": "2", "x": 1, "y": 2}), 2),
        *((placed_at(position), None) for position in (None, {"x": 100, "y": 200})),
        *((placed_at({"ordinal": ordinal}), None) for ordinal in (-1, 1e20, "third")),
    ],
)
def test_the_forms_of_an_event(attributes, ordinal):
    expected = EventRecord("s1", "wireless earbuds", CLIENT, "9", clicked=True, ordinal=ordinal)
    assert event_record(event(attributes=attributes)) == expected


@pytest.mark.parametrize(
    "record",
    [
        {**EVENT, "action_name": "page_exit", "event_attributes": {"object": {"timeElapsedCallbacks": []}, "position": {}}},
        {**EVENT, "event_attributes": {"object": {"object_id": ["B01"]}}},
        {**EVENT, "action_name": None},
        {},
    ],
)
def test_other_events_are_passed_over(record):
    assert event_record(record) is None


def test_events_that_carry_the_query_need_no_record_of_it():
    events = [event("impression"), event("click"), event("click", query_id="s2", user_query=None)]
    log = ubi.behaviour_of([], events)
    assert placed(log) == {("wireless earbuds", "B01", 7): (1, 1)}
    assert log.lost == 1


@pytest.mark.parametrize("missing", [None, "", " ", "null", "undefined", True, [], {}])
def test_events_without_the_id_of_a_search_are_of_what_a_person_typed(missing):
    """They were all clicks of one query, that of the first."""
    events = [event(user_query=query, query_id=missing) for query in ("a", "b", "a")]
    events += [event(user_query="a", query_id=missing, client_id=missing), event(user_query=None, query_id=missing)]
    nobody = event(user_query="c", query_id=missing, client_id=missing, session_id=missing)
    log = ubi.behaviour_of([{**SEARCH, "query_id": missing}], [*events, nobody])
    assert placed(log) == {("b", "B01", 7): (1, 1), ("a", "B01", 7): (2, 2)}
    assert log.lost == 2
    assert "2 events left out: without the query_id" in log.remarks(log.model(corrected=False), corrected=False)[0]


@pytest.mark.parametrize("named", ["client_id", "session_id"])
def test_a_person_counts_once_for_each_query_and_document(named):
    people = ["bot", *"abc"]
    searches, events = [], []
    for number in range(40):
        person = people[number] if number < len(people) else "bot"
        key = {"query_id": f"s{number}", "client_id": None, "session_id": None, named: person}
        searches.append({**SEARCH, **key, "query_response_hit_ids": ["B07", "B01"] if number % 2 else ["B01", "B07"]})
        events.append(event(attributes={"object": {"object_id": "B01" if person == "bot" else "B07"}}, **key))
    log = ubi.behaviour_of(searches, events)
    assert sum(clicked for (_, document, _), (_, clicked) in placed(log).items() if document == "B01") == 1
    assert log.clicks(log.model(corrected=False)).tolist() == [1, 3]  # B01, which stood first in the first search, and B07
    assert log.impressions.shown.sum() == 2 * len(people)
    remark = log.remarks(log.model(corrected=False), corrected=False)[0]
    assert remark == f"The {named.removesuffix('_id')} 'bot' made 37 of 40 clicks; it counts once for each query and document."
    anonymous = ubi.behaviour_of([{**each, named: ""} for each in searches], [{**each, named: ""} for each in events])
    assert (anonymous.impressions.clicked.sum(), anonymous.busiest) == (40, None)


@pytest.mark.parametrize("ordinals", [(0, 1, 2), (1, 2, 3)])
def test_ordinals_from_0_and_from_1(ordinals):
    shown = [event("impression", placed_at({"ordinal": ordinal}, f"d{ordinal}")) for ordinal in ordinals]
    assert sorted(place for *_, place in placed(ubi.behaviour_of([], shown))) == [0, 1, 2]
