"""Which client library sends a request: the server's first answers say it, and no request is sent only to ask."""

from __future__ import annotations

import base64
import sys
import time

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load

ELASTIC = {"X-elastic-product": "Elasticsearch"}


@pytest.fixture
def elastic(scripted):
    scripted.headers = ELASTIC
    scripted.answers["*"] = (200, {"status": "green"})
    return scripted


def test_the_first_answer_says_it_and_nothing_else_is_asked(elastic):
    pytest.importorskip("elasticsearch")
    with connect(load(url=elastic.url, user="mé", password="pässword")) as engine:
        assert engine.product == "OpenSearch"
        view = engine.patient(1.0)
        assert engine.request("GET", "/first", params={"a": True})["status"] == "green"
        assert engine.product == view.product == "Elasticsearch"
        assert view.request("POST", "/second/_search", params={"b": "x y"}, body={"size": 0})
        assert engine.client is view.client
    assert [path for _, path, *_ in elastic.seen] == ["/first?a=true", "/second/_search?b=x+y"]
    expected = f"Basic {base64.b64encode('mé:pässword'.encode()).decode()}"
    assert [headers["authorization"] for *_, headers, _ in elastic.seen] == [expected] * 2
    assert {headers["content-type"] for *_, headers, _ in elastic.seen} == {"application/json"}
    agents = [headers["user-agent"] for *_, headers, _ in elastic.seen]
    assert "opensearch" in agents[0]
    assert "elastic" in agents[1]


def test_an_opensearch_keeps_its_client_and_a_proxys_error_says_nothing(scripted):
    scripted.queue = [(502, b"<html>"), (404, {"error": "x"})]
    scripted.answers["*"] = (200, {})
    with connect(load(url=scripted.url)) as engine:
        for _ in range(2):
            with pytest.raises(EngineResponseError, match="OpenSearch answered"):
                engine.request("DELETE", "/x")
        engine.request("GET", "/x")
        scripted.headers = ELASTIC  # said too late: the product does not change
        engine.request("GET", "/x")
        assert engine.product == "OpenSearch"


def test_without_its_client_a_sentence_says_how_to_install_it(elastic, monkeypatch):
    monkeypatch.setitem(sys.modules, "elasticsearch", None)
    with connect(load(url=elastic.url)) as engine, pytest.raises(UsageError) as caught:
        engine.request("GET", "/")
    assert "is an Elasticsearch, and its client is not installed" in caught.value.message
    assert "[elasticsearch]" in caught.value.hint


def test_failures_of_its_client_are_the_same_sentences(elastic):
    pytest.importorskip("elasticsearch")
    with connect(load(url=elastic.url)) as engine:
        engine.request("GET", "/")
        elastic.delays = [3.0]
        with pytest.raises(EngineUnreachable, match=r"Elasticsearch at .* did not answer GET /slow in time"):
            engine.request("GET", "/slow", timeout=0.2)
        while elastic.delays:  # or the next request would get the answer of this one
            time.sleep(0.01)
        elastic.queue = [(None, {})]
        with pytest.raises(EngineUnreachable, match="closed the connection"):
            engine.request("DELETE", "/cut")
        elastic.queue = [(404, {"error": {"reason": "no such index [x]"}})]
        with pytest.raises(EngineResponseError, match="Elasticsearch answered 404 to GET /x: no such index"):
            engine.request("GET", "/x")
        engine.close()
        assert engine.request("GET", "/") == {"status": "green"}
