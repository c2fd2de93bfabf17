"""`termweave connect` on a server with ml-commons, with a model server in a process of its own."""

from __future__ import annotations

import json

import pytest

from termweave.errors import TermweaveError
from termweave.search import Index
from termweave.ui.connector import connection, ml_commons
from termweave.ui.connector.connection import ConnectOptions

from .conftest import DOCUMENTS, answering, serving

pytestmark = [pytest.mark.nightly, pytest.mark.engine]


def parts(engine, name):
    """What the server has under a name: models, groups, pipeline and template."""
    found = [*ml_commons.models(engine, f"{name}-query"), *ml_commons._named(engine, ml_commons._GROUPS, f"{name}-query")]
    for path in (f"/_search/pipeline/{name}-learned", f"/_scripts/{name}-learned"):
        try:
            found.append(engine.request("GET", path))
        except TermweaveError:
            continue
    return found


def test_a_match_query_gets_learned_search(termweave, small, search, ml_engine):
    index = Index.open(ml_engine, small)
    with serving(ml_engine.url, small) as url:
        plan = json.loads(termweave("connect", small, "--model-server", url, "--plan", "--json"))
        assert plan["written"] is False
        assert parts(ml_engine, small) == []
        for _ in range(2):  # again changes nothing
            made = json.loads(termweave("connect", small, "--model-server", url, "--json"))
            assert len(ml_commons.models(ml_engine, f"{small}-query")) == 1
        assert made["notes"] == ["The server fuses by min-max, not by adaptive."]
        question = "run code later"
        expected = {hit.id: hit.score for hit in index.search(question, mode="hybrid@min-max", server_fusion=True)}
        assert list(search(small, question).items()) == list(expected.items())
        only = {"bool": {"must": {"match": {"text": question}}, "filter": {"terms": {"id": ["csv", "json"]}}}}
        assert set(search(small, only)) == {"csv", "json"}
        assert set(search(small, {"match_all": {}})) == set(DOCUMENTS)
        body = {"id": f"{small}-learned", "params": {"query": 'run "code" later', "size": 1}}
        answer = ml_engine.request(
            "POST", f"/{small}/_search/template", params={"search_pipeline": f"{small}-learned"}, body=body
        )
        (hit,) = answer["hits"]["hits"]
        assert hit["_id"] == "timer"
        assert not hit["_source"].keys() & {"weights", "vector", "vector_fp16"}
        # The scores of one signal are its own; those of vectors as the server writes an inner product.
        for mode, written in (("weights", lambda score: score), ("dense", lambda ip: 1 + ip if ip >= 0 else 1 / (1 - ip))):
            termweave("connect", small, "--model-server", url, "--mode", mode)
            own = {hit.id: written(hit.score) for hit in index.search(question, mode=mode)}
            assert search(small, question) == pytest.approx(own, rel=1e-5)
            assert len(ml_commons.models(ml_engine, f"{small}-query")) == 1
    audit = termweave("audit", small, "--json")
    assert [line["act"] for line in json.loads(audit)["lines"]].count("connect") == 4
    foreign = {"description": "of somebody else", "request_processors": [{"filter_query": {"query": {"match_all": {}}}}]}
    ml_engine.request("PUT", f"/_search/pipeline/{small}-other", body=foreign)
    assert json.loads(termweave("connect", small, "--remove", "--json"))["removed"]
    assert parts(ml_engine, small) == []
    ml_engine.request("DELETE", f"/_search/pipeline/{small}-other")


def test_without_a_model_server_a_search_fails_or_falls_back(termweave, small, search, ml_engine, closed_port):
    dead = f"http://127.0.0.1:{closed_port}"
    text = termweave("connect", small, "--model-server", dead, status=1)
    assert f"The cluster cannot use the model server at {dead}" in text
    assert f"termweave serve {small} --models" in text
    assert [part for part in parts(ml_engine, small) if isinstance(part, dict)] == []  # no pipeline, no template
    assert ml_commons.models(ml_engine, f"{small}-query") == []
    plain = search(small, "lists of strings", learned=False)
    for options in ((), ("--fallback",)):
        with serving(ml_engine.url, small) as url:
            termweave("connect", small, "--model-server", url, *options)
            assert search(small, "lists of strings") != plain
        if options:
            assert search(small, "lists of strings") == plain
        else:
            with pytest.raises(TermweaveError, match="Connection refused"):
                search(small, "lists of strings")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"status": 503}, "4,096 texts wait"),
        ({"body": {"object": "list", "data": []}}, "is not a model server of termweave"),
        ({"after": 12.0}, "[Rr]ead timed? ?out|timeout|timed out"),
    ],
)
def test_a_model_server_that_does_not_answer_as_it_should(termweave, small, ml_engine, answer, message):
    with answering(**answer) as url, pytest.raises(AssertionError, match=message):
        termweave("connect", small, "--model-server", url)
    assert ml_commons.models(ml_engine, f"{small}-query") == []


def test_a_vector_of_another_dimension(termweave, small, search):
    wrong = {"query": {"knn": {"vector": {"vector": [0.1, 0.2], "k": 5}}}}
    with answering(body=wrong) as url:
        termweave("connect", small, "--model-server", url, "--mode", "dense")
        with pytest.raises(TermweaveError, match="dimension"):
            search(small, "lists")


def test_an_index_that_was_built_with_another_model(termweave, small, search, ml_engine, tmp_path):
    with serving(ml_engine.url, small) as url:
        termweave("connect", small, "--model-server", url, "--mode", "weights")
        termweave("index", tmp_path / "corpus.jsonl", small, "--weights", "bm25-german", "--dense", "none")
        with pytest.raises(TermweaveError, match="was built with"):
            search(small, "lists of strings")
        termweave("connect", small, "--model-server", url, "--mode", "weights")
        assert "csv" in search(small, "lists of strings")
        assert len(ml_commons.models(ml_engine, f"{small}-query")) == 1


def test_a_model_server_that_asks_for_a_token(termweave, small, search, ml_engine, tmp_path):
    token = tmp_path / "token.txt"
    token.write_text("a-token-of-more-than-16-characters\n")
    with serving(ml_engine.url, small, "--token-file", str(token)) as url:
        text = termweave("connect", small, "--model-server", url, status=1)
        assert "The cluster cannot use the model server" in text
        for _ in range(2):
            termweave("connect", small, "--model-server", url, "--token-file", token)
            assert next(iter(search(small, "lists of strings"))) == "csv"
            assert len(ml_commons.models(ml_engine, f"{small}-query")) == 1
    stored = ml_engine.request("POST", "/_plugins/_ml/models/_search", body={"query": {"match_all": {}}, "size": 100})
    assert token.read_text().strip() not in json.dumps(stored)


def test_what_a_killed_command_left_is_used(termweave, small, ml_engine):
    with serving(ml_engine.url, small) as url:
        planned = connection.plan(ml_engine, small, ConnectOptions(address=url))
        left = ml_commons.register(ml_engine, planned.connection.model_bodies()[f"{small}-query"])
        termweave("connect", small, "--model-server", url)
        assert [each.id for each in ml_commons.models(ml_engine, f"{small}-query")] == [left]


def test_what_cannot_be_connected(termweave, small, ml_engine, tmp_path):
    assert "no signal 'nothing'" in termweave("connect", small, "--mode", "nothing", status=2)
    assert "termweave writes the documents" in termweave("connect", small, "--documents", status=2)
    termweave("index", tmp_path / "corpus.jsonl", small, "--passage-size", "5")
    assert "holds passages" in termweave("connect", small, status=2)
    path = f"/_search/pipeline/{small}-learned"
    ml_engine.request("PUT", path, body={"request_processors": [{"filter_query": {"query": {"match_all": {}}}}]})
    try:
        assert "that termweave did not make" in termweave("connect", small, "--remove", status=2)
    finally:
        ml_engine.request("DELETE", path)


def test_documents_of_an_application_get_the_numbers_of_the_build(termweave, fresh, search, ml_engine):
    mapping = {"properties": {"name": {"type": "text"}, "description": {"type": "text"}}}
    ml_engine.request("PUT", f"/{fresh}", body={"settings": {"index.knn": True}, "mappings": mapping})
    for key, text in DOCUMENTS.items():
        ml_engine.request("PUT", f"/{fresh}/_doc/{key}", body={"name": key, "description": text})
    ml_engine.request("POST", f"/{fresh}/_refresh")
    termweave("enrich", fresh, "--title-field", "name", "--text-field", "description")
    written = {
        "zip": {"name": "zip", "description": "Read and write ZIP archives."},
        "untitled": {"description": "Compress data with gzip."},
        "blank": {"name": " "},
    }
    with serving(ml_engine.url, fresh) as url:
        termweave("connect", fresh, "--model-server", url, "--documents")
        lines = [part for key, body in written.items() for part in ({"index": {"_id": key}}, body)]
        params = {"pipeline": f"{fresh}-documents", "refresh": True}
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        assert not ml_engine.request("POST", f"/{fresh}/_bulk", params=params, body=body)["errors"]
        assert next(iter(search(fresh, "read archives"))) == "zip"
        before = {key: ml_engine.request("GET", f"/{fresh}/_doc/{key}")["_source"] for key in written}
        assert before["blank"] == written["blank"]
        assert not any("termweave_text" in source for source in before.values())
        termweave("connect", fresh, "--model-server", url)  # without --documents: the ingest pipeline goes
        with pytest.raises(TermweaveError, match="404"):
            ml_engine.request("GET", f"/_ingest/pipeline/{fresh}-documents")
        assert ml_commons.models(ml_engine, f"{fresh}-weights") == []
    termweave("enrich", fresh)
    for key in ("zip", "untitled"):
        after = ml_engine.request("GET", f"/{fresh}/_doc/{key}")["_source"]
        assert after["weights"] == before[key]["weights"]
        assert after["vector"] == pytest.approx(before[key]["vector"], abs=1e-6)
        assert "vector_fp16" in after.keys() - before[key].keys()
