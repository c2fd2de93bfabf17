"""Several addresses of one cluster: nodes are asked in turn, one that is away costs nothing or one retry, and no write is sent twice."""

import base64
import time

import pytest

from termweave.corpora.formats.addresses import parse_index
from termweave.engine import EngineResponseError, connect
from termweave.engine.client import transports
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.conftest import Scripted

AWAY = (503, {"error": {"type": "cluster_block_exception", "reason": "no cluster manager"}})


@pytest.fixture(params=["OpenSearch", "Elasticsearch"])
def nodes(request):
    """Three nodes of one cluster, and the addresses with commas."""
    if request.param == "Elasticsearch":
        pytest.importorskip("elasticsearch")
    servers = [Scripted() for _ in range(3)]
    for node in servers:
        node.answers["*"] = (200, {})
        node.headers = {"X-elastic-product": "Elasticsearch"} if request.param == "Elasticsearch" else {}
    yield servers
    for node in servers:
        node.close()


@pytest.fixture
def engine(nodes):
    with connect(load(url=", ".join(node.url for node in nodes))) as connection:
        for _ in range(4):  # which says which library is needed, and makes all nodes known
            connection.request("GET", "/first")
        for node in nodes:
            node.seen.clear()
        yield connection


def counts(nodes, path=""):
    return [sum(path in each[1] for each in node.seen) for node in nodes]


def kill(engine, *nodes):
    """Close the doors of nodes; what a handler thread still serves is closed from here."""
    for node in nodes:
        node.close()
    engine.close()


def test_all_nodes_are_asked_in_turn_and_a_dead_one_costs_no_request(nodes, engine):
    for _ in range(6):
        engine.request("GET", "/index")
    assert counts(nodes, "/index") == [2, 2, 2]
    kill(engine, nodes[0])
    for method, path in (("GET", "/index/_search"), ("POST", "/index/_doc")):
        for _ in range(6):
            assert engine.request(method, path, body={}, retry=False) == {}
        assert sum(counts(nodes, path)) == 6


def test_a_request_that_was_lost_is_sent_to_the_next_node_only_if_that_does_no_harm(nodes, engine):
    for node in nodes:
        node.queue = [(None, None)]
    with pytest.raises(EngineUnreachable, match=r"closed the connection\. If"):
        engine.request("POST", "/index/_doc", body={})
    assert sum(counts(nodes, "/index")) == 1
    assert engine.request("GET", "/index") == {}  # which the two others cut, too
    assert sum(counts(nodes, "/index")) == 4


def test_a_node_outside_its_cluster_is_not_the_clusters_answer(nodes, engine):
    nodes[1].answers["*"] = AWAY
    for _ in range(6):
        assert engine.request("PUT", "/index", body={}) == {}
    for node in nodes:
        node.answers["*"] = AWAY
    with pytest.raises(EngineResponseError, match="no cluster manager"):
        engine.request("PUT", "/index", body={})


def test_a_reader_leaves_a_node_that_is_silent(nodes, engine, monkeypatch):
    monkeypatch.setattr(transports, "_ANSWERING", 0.3)
    nodes[2].delays = [20] * 9
    began = time.monotonic()
    for _ in range(6):
        assert engine.request("GET", "/index/_search") == {}
    assert time.monotonic() - began < 10
    assert len(nodes[2].seen) == 1


def test_where_no_node_answers_one_sentence_says_so(nodes, engine):
    kill(engine, *nodes)
    with pytest.raises(EngineUnreachable, match=r"^No OpenSearch answers at http://[\d.:]+; the other addresses failed, too\. "):
        engine.request("PUT", "/index")


def test_each_address_gets_its_own_credentials(nodes):
    first, second, third = (node.url.removeprefix("http://") for node in nodes)
    with connect(load(url=f"http://a:%2C1@{first},http://b:2@{second},http://{third}")) as engine:
        for _ in range(4):
            engine.request("GET", "/")
    sent = [node.seen[-1][2].get("authorization", "").removeprefix("Basic ") for node in nodes]
    assert [base64.b64decode(each).decode() for each in sent] == ["a:,1", "b:2", ""]
    assert engine.user == "a"
    assert "1" not in engine.url.replace(first, "").replace(second, "").replace(third, "")


def test_one_address_twice_is_one(scripted):
    scripted.answers["*"] = (200, {})
    with connect(load(url=f"{scripted.url},{scripted.url}/")) as engine:
        engine.use_elasticsearch()  # whose client refuses one twice
        assert engine.addresses == (scripted.url,)
        engine.request("GET", "/")


def test_a_source_with_several_addresses_is_wrong_usage():
    with pytest.raises(UsageError, match="is not the address of one server") as caught:
        parse_index("opensearch:https://me:hush@one:9200,https://two:9200/docs")
    assert "hush" not in str(caught.value)


def test_addresses_of_different_clusters_are_refused(nodes):
    for node, cluster in zip(nodes, ("_na_", "one-cluster", "another"), strict=True):
        node.answers["/"] = (200, {"cluster_uuid": cluster})
    refused = pytest.raises(UsageError, match=r"http://[\d.:]+ and http://[\d.:]+ belong to different clusters")
    with connect(load(url=",".join(node.url for node in nodes))) as engine, refused:
        [engine.request("PUT", "/index") for _ in range(4)]
    assert not all(any(method == "PUT" for method, *_ in node.seen) for node in nodes[1:])


def test_a_node_that_was_away_is_asked_for_its_cluster_before_it_gets_a_request(nodes, engine, monkeypatch):
    """A paused node takes connections: each batch of documents that it got after its time-out waited for a minute."""
    monkeypatch.setattr(transports, "_ANSWERING", 0.3)
    nodes[0].delays = [20] * 9
    for _ in range(3):
        engine.request("GET", "/index/_search")
    monkeypatch.setattr(time, "time", lambda: time.monotonic() + 1e10)  # the pools' clock: its time is over
    for _ in range(3):
        assert engine.request("POST", "/index/_bulk", body=b"{}") == {}
    assert counts(nodes[:1], "_bulk") == [0]
