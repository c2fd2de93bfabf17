"""Which client library sends a request, for how long and for how many bytes it waits, and what a server can do: its answers say it."""

import base64
import sys
import time
import tracemalloc
import zlib
from contextlib import contextmanager

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.engine.client.capabilities import probe
from termweave.errors import EngineError, EngineUnreachable, UsageError
from termweave.records import Capabilities
from termweave.settings import load
from tests.engine.forwarding import accepting

ELASTIC = {"X-elastic-product": "Elasticsearch"}
ROOT = {"version": {"number": "3.6.0", "distribution": "opensearch"}}
FORBIDDEN = (403, {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403})
PACKED = zlib.compressobj(9, zlib.DEFLATED, 31)
BOMB = PACKED.compress(bytes(400_000_000)) + PACKED.flush()
PRODUCTS = pytest.mark.parametrize("product", [b"", b"X-Elastic-Product: Elasticsearch\r\n"], ids=["opensearch", "elasticsearch"])


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
@pytest.mark.parametrize(("more", "part"), [(b"", bytes(10**7)), (b"content-encoding: gzip\r\n", BOMB)], ids=["plain", "bomb"])
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


@pytest.mark.parametrize(
    ("root", "other", "expected"),
    [
        # A user who may ask nothing gets the careful answers.
        ((200, ROOT), {}, Capabilities("3.6.0")),
        # One who may search, but not manage, has vectors.
        ((200, ROOT), {"/termweave-probe-none-*/_search": (200, {})}, Capabilities("3.6.0", knn=True, neural_sparse=True)),
        ((200, ROOT), {"/_index_template/_simulate": (200, {})}, Capabilities("3.6.0", knn=True)),
        ((200, {"version": {"number": "8.15.0"}}), {}, Capabilities("8.15.0", "elasticsearch")),
        ((404, {}), {}, Capabilities("unknown")),  # a managed service without a root page
    ],
)
def test_what_may_not_be_asked_is_answered_carefully(scripted, root, other, expected):
    scripted.answers = {"/": root, **other, "*": FORBIDDEN}
    with connect(load(url=scripted.url)) as engine:
        if expected.distribution == "elasticsearch":
            pytest.importorskip("elasticsearch")
        assert probe(engine) == expected
    # Every first connection waits for it.
    assert [path for _, path, *_ in scripted.seen].count("/_index_template/_simulate") <= 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {"hello": "world"}), "is neither an OpenSearch"),
        ((401, b"Unauthorized"), "401"),  # a wrong password does not make a poor server
        ((200, []), "is not an OpenSearch"),
        ((302, b""), "302"),
        ((400, b"<html>"), "400"),
        ((500, {}), "500"),
    ],
)
def test_what_is_no_server_of_ours_is_called_that(scripted, answer, message):
    scripted.answers = {"/": answer, "*": (404, b"")}
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineError, match=message):
        probe(engine)


def test_the_real_server_is_asked_and_left_as_it_was(opensearch_engine):
    def contents():
        wanted = {"filter_path": "metadata.indices.*.state,metadata.templates,metadata.index_template"}
        return opensearch_engine.request("GET", "/_cluster/state/metadata", params=wanted)

    before = contents()
    capabilities = probe(opensearch_engine)
    assert contents() == before
    assert capabilities.version[0].isdigit()
    assert capabilities.distribution == "opensearch"
    assert any("knn" in plugin for plugin in capabilities.plugins) == capabilities.knn
    assert capabilities.neural_sparse == any("neural" in plugin for plugin in capabilities.plugins)
    assert capabilities.max_clause_count >= 1024


def test_the_clause_limit_is_the_one_that_holds(opensearch_engine):
    def limit(value):
        opensearch_engine.request("PUT", "/_cluster/settings", body={"transient": {"indices.query.bool.max_clause_count": value}})

    limit(1500)
    try:
        assert probe(opensearch_engine).max_clause_count == 1500
    finally:
        limit(None)


@pytest.mark.parametrize(
    ("product", "status", "sent"),
    [("OpenSearch", 400, b"{}"), ("OpenSearch", 403, b'{"search_pipeline":{}}'), ("Elasticsearch", 400, b"{}")],
)
def test_a_search_gets_its_own_pipeline_where_the_server_knows_it(scripted, product, status, sent):
    scripted.headers = ELASTIC if product == "Elasticsearch" else {}
    scripted.answers = {"/termweave-probe-none-*/_search": (status, {"error": "x"}), "*": (200, {"hits": {"hits": []}})}
    with connect(load(url=scripted.url)) as engine:
        engine.request("POST", "/docs/_search", body={})
        engine.request("POST", "/_plugins/_ml/models/_search", body={})
    assert [body for *_, body in scripted.seen][-2:] == [sent, b"{}"]
