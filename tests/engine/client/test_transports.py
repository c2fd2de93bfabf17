"""Which client library sends a request, for how long and for how many bytes it waits: the server's first answers say which."""

import base64
import sys
import time
import tracemalloc
import zlib
from contextlib import contextmanager

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineError, EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.forwarding import accepting

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


@contextmanager
def dripping(beginning, *, part=b" ", pause=0.1):
    """A server that sends the beginning of an answer at once and a part of the rest after each pause, for ever."""

    def drip(connection):
        connection.recv(65536)
        connection.sendall(beginning)
        while True:
            connection.sendall(part)
            time.sleep(pause)

    with accepting(drip) as port:
        yield f"http://127.0.0.1:{port}"


PACKED = zlib.compressobj(9, zlib.DEFLATED, 31)
BOMB = PACKED.compress(bytes(400_000_000)) + PACKED.flush()
PRODUCTS = pytest.mark.parametrize("product", [b"", b"X-Elastic-Product: Elasticsearch\r\n"], ids=["opensearch", "elasticsearch"])


@PRODUCTS
@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX-Header: ", b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n%s\r\n{"])
def test_a_server_that_sends_byte_after_byte_ends_within_the_time_out(beginning, product):
    with dripping(beginning.replace(b"%s", product)) as url, connect(load(url=url, timeout=0.4)) as engine:
        if product:
            engine.use_elasticsearch()
        began = time.monotonic()
        with pytest.raises(EngineUnreachable, match="did not answer"):
            engine.request("GET", "/")
        assert time.monotonic() - began < 30  # it was without end
        engine.close()  # the next request opens new connections
        with pytest.raises(EngineUnreachable, match="did not answer"):
            engine.request("GET", "/", timeout=0.3)
        assert time.monotonic() - began < 60


@PRODUCTS
@pytest.mark.parametrize(
    ("more", "part"), [(b"", bytes(10_000_000)), (b"content-encoding: gzip\r\n", BOMB)], ids=["plain", "bomb"]
)
def test_an_answer_without_end_takes_bounded_memory(more, part, product):
    beginning = b"HTTP/1.1 200 OK\r\n" + more + product + b"\r\n"
    with dripping(beginning, part=part, pause=0) as url, connect(load(url=url)) as engine:
        if product:
            engine.use_elasticsearch()
        tracemalloc.start()
        try:
            with pytest.raises(EngineError, match="answered GET / with more than 256"):
                engine.request("GET", "/")
            assert tracemalloc.get_traced_memory()[1] < 800_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("elastic", [False, True])
def test_an_answer_that_is_not_a_text_is_a_sentence(scripted, elastic):
    scripted.answers["*"] = (200, b'{"name": "\xff\xfe"}')
    with connect(load(url=scripted.url)) as engine:
        if elastic:
            engine.use_elasticsearch()
        with pytest.raises(EngineError, match="not in UTF-8"):
            engine.request("GET", "/")
