"""The JSON API on the real server: held to its OpenAPI document, and the same as the command line."""

import json
import threading

import pytest

from termweave.ui import parameters
from termweave.ui.api import ENDPOINTS
from tests.cli import conftest as command_line
from tests.ui.conftest import client_of, opened, requests_of_every_kind


def valid(answer, schema):
    assert answer.headers["content-type"] == "application/json"
    return command_line.valid(answer.text, schema)


@pytest.mark.parametrize(
    ("address", "schema"),
    [
        ("search?q=parse+jsno&rewrite=operators,spelling&explain=1&highlight=1&facet=kind&sort=year:desc&rerank=rnn", "search"),
        ("search?like=json&k=2", "search"),
        ("explain?q=parse+json&id=csv&mode=dense", "explain"),
        ("compare?q=parse+json&mode=lexical&mode2=dense", "compare"),
        ("requests?q=parse+json", "requests"),
        ("encode?q=parse+json&q=run+a+function", "encode"),
        *(("indices", "list"), ("judge?judge=ann", "judge")),
        *((name, name) for name in ("generations", "book", "grades", "jobs")),
    ],
)
def test_answers_follow_their_schemas(client, address, schema):
    valid(client.get(f"/api/{address}").raise_for_status(), schema)


@pytest.mark.parametrize("address", ["/api/encode?q=a&q=json", "/api/search?q=json&facet=kind", "/search?q=json&filter=kind%3Da"])
def test_a_parameter_is_repeated_at_most_100_times(unreachable, address):
    answer = client_of(unreachable, index="x").get(address + f"&{address.rpartition('&')[2]}" * 100)
    assert (answer.status_code, " times" in answer.text) == (400, True)


def test_blank_values_of_a_body_are_counted_in_a_thread(unreachable, monkeypatch):
    """16 MiB of them would keep all other requests waiting, and take 1 GB."""
    read, threads = parameters.of_json, []
    monkeypatch.setattr(parameters, "of_json", lambda *given: threads.append(threading.current_thread()) or read(*given))
    answer = client_of(unreachable, index="x").post("/api/search", json={"q": "json", "filter": [""] * 101})
    assert (answer.status_code, "is given 101 times" in answer.json()["error"]) == (400, True)
    assert threads[0].name.startswith("AnyIO worker")


def test_a_search_gives_what_the_library_gives(client, attacked):
    index = opened(client, attacked)
    data = client.get("/api/search", params={"q": "run a function later", "k": 5, "explain": 1}).json()
    found = index.search("run a function later", k=5, explain=True)
    assert [(hit["id"], hit["score"]) for hit in data["hits"]] == [(hit.id, pytest.approx(hit.score)) for hit in found]
    (given,), (encoding,) = client.get("/api/encode?q=parse+json").json()["encodings"], index.encode(["parse json"])
    assert given["weights"] == pytest.approx(encoding.weights.as_dict())
    assert given["vector"] == pytest.approx(encoding.vector.tolist())
    assert data["hits"][0]["explanation"]["parts"] == json.loads(json.dumps(found[0].explanation["parts"], default=float))


def test_fields_are_separated_by_commas_and_warnings_are_data(client):
    data = valid(client.get("/api/search", params={"q": "zyzzyva", "k": 1, "fields": "title, nope*"}), "search")
    assert (set(data["hits"][0]["fields"]), len(data["warnings"]), "'nope*'" in data["warnings"][1]) == ({"title"}, 2, True)
    for wrong in ({"fields": "nope"}, {"filter": "nope=3"}, {"sort": "nope"}, {"collapse": "nope"}, {"facet": "nope"}):
        refused, page = (client.get(path, params={"q": "json", **wrong}) for path in ("/api/search", "/search"))
        assert (refused.status_code, page.status_code, "field 'nope'" in refused.text) == (400, 400, True), wrong
    assert "warnings" not in valid(client.get("/api/search", params={"q": "json"}), "search")


@pytest.mark.parametrize(
    "address",
    [
        *("search", "search?q=", "search?q=a&q=b", "search?q=a&k=0", "search?q=a&k=ten", "search?q=a&explain=perhaps"),
        *("search?q=a&index=no-such-index", "search?q=a&index=_all", "search?q=a&rerank=rnn%3Ehf:OWNER/NAME"),
        *("search?q=a&rewrite=spelling,synonyms@/etc/passwd", f"compare?q=a&rerank2={'%3E'.join(['rnn'] * 5)}"),
        *("explain?q=a", "explain?q=a&id=no-such-document", "encode", "indices?unknown=1", "judge", "judge?judge="),
        *("book?index=no-such-index", "evaluate", "evaluate?job=unknown", "tune?job=unknown"),
    ],
)
def test_mistakes_are_a_sentence_in_json(client, address):
    answer = client.get(f"/api/{address}")
    assert answer.status_code == 400
    assert valid(answer, "error")["error"]


def test_a_body_of_json_asks_as_an_address_does(client, attacked):
    """For queries that are longer than an address may be."""
    asked = {"q": "run a function later " * 400, "k": 3, "filter": ["year>=2000", "NOT kind=attack"], "explain": True}
    # A number, which an address writes as text.
    posted = valid(client.post("/api/search", json=asked | {"min_score": -0.5}), "search")
    got = client.get("/api/search", params=asked | {"explain": 1, "min_score": "-0.5"}).json()
    assert [(hit["id"], hit["score"]) for hit in posted["hits"]] == [(hit["id"], hit["score"]) for hit in got["hits"]]
    assert "explanation" in posted["hits"][0]
    assert len(valid(client.post("/api/encode", json={"q": ["a", "b"]}), "encode")["encodings"]) == 2
    for body, said in (
        (b"q=json", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"q": 5}', "'q' is not a text"),
        (b'{"q": "a", "k": "5"}', "'k' is not a whole number"),
        (b'{"q": "a", "k": 0}', "from 1 to"),
        (b'{"q": "a", "explain": 1}', "'explain' is not true or false"),
        (b'{"q": "a", "filter": [1]}', "'filter' is not a text or a list of texts"),
        (b'{"q": "a", "nothing": 1}', "no parameter 'nothing'"),
    ):
        answer = client.post("/api/search", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, said in valid(answer, "error")["error"]) == (400, True), body
    assert client.post("/api/search?k=3", json={"q": "json"}).status_code == 400
    assert client.post("/api/book", json={}).status_code == 405


def test_requests_of_every_kind_are_answered_as_described(client):
    assert len(requests_of_every_kind(client.app, "/api/openapi.json")) == len(ENDPOINTS)


def test_a_feature_of_a_search_is_a_parameter_as_it_declares_it_and_none_writes_a_file():
    declared = {each.name: each for each in parameters.FEATURES}
    shown = {"explain", "passages", "highlight", "facet", "totals"}
    assert declared.keys() == {"server_fusion", "like", "pin", "min_score", "sort", "collapse", *shown}
    assert (declared["facet"].kind, declared["facet"].option, declared["highlight"].kind) == ("texts", "facets", "flag")
    assert {name for name, each in declared.items() if each.numbers} == {"min_score", "passages"}
    assert {"sort", "collapse", "min_score"} == parameters.SELECTION
