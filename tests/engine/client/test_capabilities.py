"""What a server can do is asked, and what may not be asked is answered carefully."""

import pytest

from termweave.engine import connect
from termweave.engine.client.capabilities import probe
from termweave.errors import EngineError
from termweave.records import Capabilities
from termweave.settings import load

ROOT = {"version": {"number": "3.6.0", "distribution": "opensearch"}}
FORBIDDEN = (403, {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403})


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
    scripted.headers = {"X-elastic-product": product} if product == "Elasticsearch" else {}
    scripted.answers = {"/termweave-probe-none-*/_search": (status, {"error": "x"}), "*": (200, {"hits": {"hits": []}})}
    with connect(load(url=scripted.url)) as engine:
        engine.request("POST", "/docs/_search", body={})
        engine.request("POST", "/_plugins/_ml/models/_search", body={})
    assert [body for *_, body in scripted.seen][-2:] == [sent, b"{}"]
