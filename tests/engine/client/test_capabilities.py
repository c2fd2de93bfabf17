"""What a server can do is asked, and what may not be asked is answered carefully."""

from __future__ import annotations

import pytest

from termweave.engine import EngineResponseError, connect, probe
from termweave.errors import EngineError
from termweave.settings import load

ROOT = {"version": {"number": "3.6.0", "distribution": "opensearch"}}
FORBIDDEN = (403, {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403})


def ask(scripted, version=ROOT, **answers):
    scripted.answers = {"/": (200, version), **answers, "*": FORBIDDEN}
    with connect(load(url=scripted.url)) as engine:
        return probe(engine)


def test_a_user_who_may_ask_nothing_gets_the_careful_answers(scripted):
    found = ask(scripted)
    assert (found.version, found.plugins) == ("3.6.0", ())
    assert not found.knn
    assert not found.neural_sparse
    assert found.max_clause_count == 1024


def test_a_user_who_may_search_but_not_manage_still_has_vectors(scripted):
    found = ask(scripted, **{"/termweave-probe-none-*/_search": (200, {"hits": {"hits": []}})})
    assert found.knn
    assert found.neural_sparse


def test_a_template_is_simulated_once(scripted):
    scripted.answers = {"/": (200, ROOT), "/_index_template/_simulate": (200, {}), "*": FORBIDDEN}
    with connect(load(url=scripted.url)) as engine:
        assert probe(engine).knn
    assert [path for _, path, *_ in scripted.seen].count("/_index_template/_simulate") == 1  # every first connection waits for it


def test_a_wrong_password_is_not_taken_for_a_poor_server(scripted):
    scripted.answers["*"] = (401, b"Unauthorized")
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError, match="401"):
        probe(engine)


def test_what_is_no_opensearch_is_called_that(scripted):
    with pytest.raises(EngineError, match="is neither an OpenSearch"):
        ask(scripted, version={"hello": "world"})


@pytest.mark.parametrize("answer", [(200, []), (302, b""), (400, b"<html>"), (500, {})])
def test_a_server_without_a_root_page_that_an_opensearch_lacks_is_none(scripted, answer):
    scripted.answers = {"/": answer, "*": (404, b"")}
    with connect(load(url=scripted.url)) as engine, pytest.raises(EngineResponseError):
        probe(engine)


def test_elasticsearch_is_named(scripted):
    assert ask(scripted, version={"version": {"number": "8.15.0"}}).distribution == "elasticsearch"


def test_a_managed_service_without_a_root_page_goes_on(scripted):
    scripted.answers = {"*": (404, {})}
    with connect(load(url=scripted.url)) as engine:
        assert probe(engine).version == "unknown"


@pytest.mark.engine
def test_the_real_server_is_asked_and_left_as_it_was(opensearch_engine):
    def contents():
        wanted = {"filter_path": "metadata.indices.*.state,metadata.templates,metadata.index_template"}
        return opensearch_engine.request("GET", "/_cluster/state/metadata", params=wanted)

    before = contents()
    found = probe(opensearch_engine)
    assert contents() == before
    assert found.version[0].isdigit()
    assert found.distribution == "opensearch"
    assert any("knn" in plugin for plugin in found.plugins) == found.knn
    assert found.neural_sparse == any("neural" in plugin for plugin in found.plugins)
    assert found.max_clause_count >= 1024


@pytest.mark.engine
def test_the_clause_limit_is_the_one_that_holds(opensearch_engine):
    def limit(value):
        opensearch_engine.request("PUT", "/_cluster/settings", body={"transient": {"indices.query.bool.max_clause_count": value}})

    limit(1500)
    try:
        assert probe(opensearch_engine).max_clause_count == 1500
    finally:
        limit(None)


@pytest.mark.engine
def test_knn_means_that_a_vector_field_can_be_made(opensearch_engine, name):
    method = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct"}
    vector = {"type": "knn_vector", "dimension": 2, "method": method}
    body = {"settings": {"index.knn": True}, "mappings": {"properties": {"v": vector}}}
    if probe(opensearch_engine).knn:
        assert opensearch_engine.request("PUT", f"/{name}", body=body)["acknowledged"]
    else:
        with pytest.raises(EngineResponseError):
            opensearch_engine.request("PUT", f"/{name}", body=body)


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
