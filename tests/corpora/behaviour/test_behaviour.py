"""Click logs as judgements: recognised by their content, read like every data set, and not stopped by a line that is no click.

And records as OpenSearch's plugin, its collector and earlier versions of the schema write them; the click model; rates of documents.
"""

import gzip
import json
from math import inf

import numpy as np
import pytest

from termweave.corpora import open_dataset
from termweave.corpora.behaviour import click_model, ubi
from termweave.corpora.behaviour.clicks import ClickLog
from termweave.corpora.behaviour.ubi import EventRecord, event_record, search_record
from termweave.corpora.judgements import query_id
from termweave.errors import InputError, UsageError

LINES = ["query\tdocument\tcount", "green  tea\td1\t3", "green tea\td2\t1", "coffee\td3\t0", "kettle\td4"]


def judged(log):
    opened = open_dataset(str(log))
    return {query.text: opened.qrels()[query.id] for query in opened.queries()}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "clicks.tsv"
    path.write_text("\n".join(LINES))
    return path


def test_a_log_is_judgements(log):
    assert judged(log) == {"green tea": {"d1": 1, "d2": 1}, "kettle": {"d4": 1}}
    opened = open_dataset(f"{log}:all")
    assert (opened.name, opened.split, opened.notes) == ("clicks.tsv", "all", [])
    assert opened.queries()[0].id == query_id("green tea")  # not its text: a document may have that as its id, and it may be long
    with pytest.raises(UsageError, match="no split 'dev'"):
        open_dataset(f"{log}:dev")
    with pytest.raises(UsageError, match="A click log has no documents"):
        next(iter(opened.documents()))


@pytest.mark.parametrize(
    "written",
    [
        b"green tea\td1\r\nkettle\td4\r\n",
        gzip.compress(b"green tea\td1\t1\nkettle\td4\t2\n"),
        "\ufeffgreen tea\td1\t1\nkettle\td4\t2\n".encode(),
        b"".join(json.dumps({"query": q, "document": d}).encode() + b"\n" for q, d in (("green tea", "d1"), ("kettle", "d4"))),
        b'not a click\n{"query": "green tea", "document": "d1"}\n{"query": "kettle", "document": "d4", "count": null}\n',
    ],
    ids=["pairs", "packed", "mark", "json", "odd-first-line"],
)
def test_every_form_is_recognised_by_its_content(written, log):
    log.write_bytes(written)
    assert judged(log) == {"green tea": {"d1": 1}, "kettle": {"d4": 1}}


def test_other_files_are_none(log):
    for written in ("id,text\n1,tea\n", '{"_id": "a", "text": "tea"}\n', "a\ttitle\ttext\n", "", "tea\n\ncoffee\n"):
        log.write_text(written)
        assert not ClickLog.recognises(str(log)), written
        with pytest.raises(UsageError, match="a click log"):
            open_dataset(log)


@pytest.mark.parametrize(
    ("odd", "why"),
    [("what\t" + "x" * 9_000 + "\t1", "has 9,000 characters"), ("a\tb\tc\td", r"'a\\tb\\tc\\td'"), ("{broken", "'{broken'")],
    ids=["long-id", "columns", "json"],
)
def test_an_odd_line_is_left_out_and_counted(odd, why, log):
    log.write_text("\n".join([*LINES, odd, odd]))
    assert judged(log) == {"green tea": {"d1": 1, "d2": 1}, "kettle": {"d4": 1}}
    (note,) = open_dataset(str(log)).notes
    assert note.startswith("2 lines of clicks.tsv left out: not a click, such as line 6")
    assert why.replace("\\\\", "\\") in note
    assert "--skip-bad" not in note


def test_a_file_with_hardly_a_click_is_named(log):
    log.write_text("q\td\t1\na\tb\tc\td\na\tb\tc\td\n")
    with pytest.raises(InputError, match=r"(?s)line 2 is not a click.*Write query, document id and count"):
        open_dataset(str(log)).queries()


#: The plugin's record of a search: the user's query, the ids in order, and the request as text.
SEARCH = {
    "timestamp": "2025-03-03T16:47:44.907Z", "query_id": "s1", "query_response_id": "r1", "query_response_hit_ids": ["B07", "B01", "B08"],
    "client_id": "CLIENT-4683", "application": "Chorus", "user_query": "wireless  earbuds", "query_attributes": {},
    "query": '{"from":0,"size":3,"query":{"match":{"title":{"query":"wireless earbuds"}}},"ext":{"ubi":{"object_id_field":"asin"}}}',
}  # fmt: skip
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
    assert search_record(SEARCH).listed == {"B07": 0, "B01": 1, "B08": 2}
    assert search_record(SEARCH).query == "wireless earbuds"
    assert search_record({**SEARCH, "user_query": {"text": "earbuds"}}).query == "earbuds"
    assert search_record({**SEARCH, "user_query": "caf\u0065\u0301\u200b  bar"}).query == "caf\u00e9 bar"
    for name in ("query_response_object_ids", "query_response_objects_ids"):  # earlier versions
        assert search_record({**SEARCH, name: ["B07"], "query_response_hit_ids": None}).listed == {"B07": 0}
    assert search_record({**SEARCH, "query_response_hit_ids": ["a", None, 7]}).listed == {"a": 0, "7": 2}
    for without in ({"query_id": None}, {"user_query": None}, {"user_query": " "}):
        assert search_record({**SEARCH, **without}) is None


def test_pages_of_one_search_follow_each_other():
    second = {**SEARCH, "query_response_hit_ids": ["B05", "B07"], "query": SEARCH["query"].replace('"from":0', '"from":3')}
    log = ubi.behaviour_of([second, SEARCH], [event()])
    places = {"B07": 4, "B01": 1, "B08": 2, "B05": 3}  # B07 is on both pages; the page that was logged first counts
    assert placed(log) == {("wireless earbuds", each, place): (1, int(each == "B01")) for each, place in places.items()}


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


@pytest.mark.parametrize("missing", [None, "", " ", "null", "undefined", True, [], {}])
def test_events_without_the_id_of_a_search_are_of_what_a_person_typed(missing):
    """They were all clicks of one query, that of the first."""
    events = [event(user_query=query, query_id=missing) for query in ("a", "b", "a")]
    events += [event(user_query="a", query_id=missing, client_id=missing), event(user_query=None, query_id=missing)]
    nobody = event(user_query="c", query_id=missing, client_id=missing, session_id=missing)
    log = ubi.behaviour_of([{**SEARCH, "query_id": missing}], [*events, nobody])
    assert placed(log) == {("b", "B01", 7): (1, 1), ("a", "B01", 7): (2, 2)}
    assert log.lost == 2
    assert "2 events left out, with neither the query_id" in log.remarks(log.model(corrected=False), corrected=False)[0]


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
    said = f"The {named.removesuffix('_id')} 'bot' made 37 of 40 clicks; its clicks count once for each query and document."
    assert log.remarks(log.model(corrected=False), corrected=False)[0] == said
    anonymous = ubi.behaviour_of([{**each, named: ""} for each in searches], [{**each, named: ""} for each in events])
    assert (anonymous.impressions.clicked.sum(), anonymous.busiest) == (40, None)


@pytest.mark.parametrize("ordinals", [(0, 1, 2), (1, 2, 3)])
def test_ordinals_from_0_and_from_1(ordinals):
    shown = [event("impression", placed_at({"ordinal": ordinal}, f"d{ordinal}")) for ordinal in ordinals]
    assert sorted(place for *_, place in placed(ubi.behaviour_of([], shown))) == [0, 1, 2]


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
        events += [action(number, f"d{query}-{each}", place) for place, each in enumerate(order) if clicked[place]]
    return ubi.behaviour_of(searches, events), attraction


def search(number, query, shown, **more):
    return {"query_id": f"s{number}", "user_query": query, "query_response_hit_ids": shown, **more}


def action(number, document, place=None, name="click", **more):
    attributes = {"object": {"object_id": document}, **({"position": {"ordinal": place}} if place is not None else {})}
    return {"query_id": f"s{number}", "action_name": name, "event_attributes": attributes, **more}


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
    searches = [search(1, "red  sofa", ["1", "2", 3]), {"query_id": "s2", "user_query": "red sofa"}]
    searches += [search(3, None, ["1"]), search(4, "one", "9"), {"user_query": "no id"}]
    events = [
        action(1, "2"), action(1, "2"), action(1, "2", name="purchase"), action(1, "3"), action(1, "8"), action(1, "1", name="hover"),
        action(2, "2", 5, name="impression"), action(2, "7"), action(2, "7", 1), action(9, "1"), {"action_name": "click", "query_id": "s1"}, {},
    ]  # fmt: skip
    log = ubi.behaviour_of(searches, events)
    assert placed(log) == {
        ("red sofa", "1", 0): (1, 0), ("red sofa", "2", 1): (1, 1), ("red sofa", "3", 2): (1, 1), ("red sofa", "2", 4): (1, 0),
        ("red sofa", "7", 0): (1, 1), ("one", "9", 0): (1, 0),
    }  # fmt: skip
    assert (log.unplaced, log.lost) == (1, 1)
    assert log.qrels(log.model(corrected=False)) == {"red sofa": {"1": 0, "2": 2, "3": 3, "7": 3}}
    empty = ubi.behaviour_of([], [])
    assert len(click_model.fit(empty.impressions).examined) == len(click_model.raw(empty.impressions).attractive) == 0


def test_rates_of_documents_by_hand():
    lists = [("red", "ab"), ("red", "ac"), ("blue", "ba"), ("Blue ", "bc")]
    searches = [search(number, query, list(shown)) for number, (query, shown) in enumerate(lists, 1)]
    events = [action(1, "a"), action(3, "a"), action(3, "a", name="purchase"), action(4, "b", name="buy")]
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
    assert (log := ubi.behaviour_of(searches, [action(1, "a", timestamp=1740960000000)])).first == 1740960000
    assert log.last == 1740960010.5
    unknown = ubi.behaviour_of(searches, [action(1, "a", timestamp="yesterday")])
    assert (unknown.first, unknown.last) == (-inf, inf)
