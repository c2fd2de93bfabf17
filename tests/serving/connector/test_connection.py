"""`termweave connect` on a server with ml-commons, with a model server in a process of its own."""

import json
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from termweave.engine import Engine
from termweave.errors import EngineError, EngineUnreachable, TermweaveError
from termweave.search import Index
from termweave.serving.connector import connection, ml_commons
from termweave.serving.connector.registrations import ConnectOptions, marker, model_names
from termweave.serving.model_server import served_models

from .conftest import DOCUMENTS, answering, serving

pytestmark = [pytest.mark.nightly, pytest.mark.engine]


def parts(engine, name):
    """What the server has under a name: models, groups, pipeline and template."""
    found = [*ml_commons.models(engine, f"{name}-query"), *ml_commons.models(engine, f"{name}-query", ml_commons._GROUPS)]
    for path in (f"/_search/pipeline/{name}-learned", f"/_scripts/{name}-learned"):
        with suppress(TermweaveError):
            found.append(engine.request("GET", path))
    return found


def by_template(engine, name, **params):
    """The hits of a search by the template of an index."""
    body, learned = {"id": f"{name}-learned", "params": params}, {"search_pipeline": f"{name}-learned"}
    return engine.request("POST", f"/{name}/_search/template", params=learned, body=body)["hits"]["hits"]


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
        termweave("profiles", small, "--save", "spelt", "--mode", "hybrid@min-max", "--rewrite", "spelling")
        spelt = json.loads(termweave("connect", small, "--model-server", url, "--mode", "spelt", "--plan", "--json"))
        assert spelt["notes"] == ["The server does not rewrite queries (spelling)."]
        question = "run code later"
        expected = {hit.id: hit.score for hit in index.search(question, mode="hybrid@min-max", server_fusion=True)}
        assert list(search(small, question).items()) == list(expected.items())
        only = {"bool": {"must": {"match": {"text": question}}, "filter": {"terms": {"id": ["csv", "json"]}}}}
        assert set(search(small, only)) == {"csv", "json"}
        assert set(search(small, {"match_all": {}})) == set(DOCUMENTS)
        (hit,) = by_template(ml_engine, small, query='run "code" later', size=1)
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


def test_an_index_that_was_built_with_another_model(termweave, small, search, ml_engine, tmp_path):
    with serving(ml_engine.url, small) as url:
        termweave("connect", small, "--model-server", url, "--mode", "weights")
        termweave("index", tmp_path / "corpus.jsonl", small, "--weights", "bm25-german", "--dense", "none")
        time.sleep(served_models.FRESH)
        with pytest.raises(TermweaveError, match="its search pipeline was made for"):
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
        wrong = tmp_path / "wrong.txt"
        wrong.write_text("another-token-of-16-characters\n")
        said = termweave("connect", small, "--model-server", url, "--token-file", wrong, status=1)
        for each, asks in ((text, "asks for a token"), (said, "asks for another token")):
            assert (asks in each, "--token-file" in each, "TERMWEAVE_USER" in each) == (True, True, False)
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


def test_an_index_name_that_the_plugin_refuses(termweave, small, ml_engine):
    ml_engine.request("PUT", f"/{Index.open(ml_engine, small).generation}/_alias/{small}=v2")
    said = termweave("connect", f"{small}=v2", status=1)
    assert "give the index another name" in said
    assert "termweave serve" not in said


def test_what_cannot_be_connected(termweave, small, ml_engine, tmp_path):
    assert "no signal 'nothing'" in termweave("connect", small, "--mode", "nothing", status=2)
    assert "termweave writes the documents" in termweave("connect", small, "--documents", status=2)
    termweave("index", tmp_path / "corpus.jsonl", small, "--passage-size", "5")
    assert "holds passages" in termweave("connect", small, status=2)
    path = f"/_search/pipeline/{small}-learned"
    ml_engine.request("PUT", path, body={"request_processors": [{"filter_query": {"query": {"match_all": {}}}}]})
    template = f"/_scripts/{small}-learned"
    try:
        assert "that termweave did not make" in termweave("connect", small, "--remove", status=2)
        ml_engine.request("PUT", path, body={"description": marker(small), "request_processors": []})
        ml_engine.request("PUT", template, body={"script": {"lang": "mustache", "source": "{}"}})
        assert "that termweave did not make" in termweave("connect", small, "--remove", status=2)
        assert ml_engine.request("GET", path)  # nothing is removed before all is checked
    finally:
        ml_engine.request("DELETE", path)
        ml_engine.request("DELETE", template)


def test_the_filters_of_the_default_search_pipeline_hold_in_the_connected_one(termweave, small, search, ml_engine):
    index, default = Index.open(ml_engine, small).generation, f"{small}-default"
    hiding = {"filter_query": {"query": {"terms": {"id": ["timer", "json"]}}}}
    ml_engine.request("PUT", f"/_search/pipeline/{default}", body={"request_processors": [hiding]})
    ml_engine.request("PUT", f"/{index}/_settings", body={"index.search.default_pipeline": default})
    try:
        with serving(ml_engine.url, small) as url:
            termweave("connect", small, "--model-server", url)
            for query in ("run code later", {"match_all": {}}):
                assert set(search(small, query)) == {"timer", "json"}
            ml_engine.request("PUT", f"/{index}/_settings", body={"index.search.default_pipeline": f"{small}-learned"})
            termweave("connect", small, "--model-server", url)
            assert set(search(small, "run code later")) == {hit.id for hit in Index.open(ml_engine, small).search("run")}
            made = ml_engine.request("GET", f"/_search/pipeline/{small}-learned")[f"{small}-learned"]
            assert [*map(next, map(iter, made["request_processors"]))] == ["filter_query", "ml_inference"]
    finally:
        ml_engine.request("PUT", f"/{index}/_settings", body={"index.search.default_pipeline": None})
        ml_engine.request("DELETE", f"/_search/pipeline/{default}")


def test_what_a_user_adds_to_the_pipeline_stays(termweave, small, search, ml_engine):
    path, body = f"/_search/pipeline/{small}-learned", {"query": {"match": {"text": "run code later"}}, "explain": True}
    before = {"filter_query": {"query": {"term": {"id": "timer"}}}}
    after = {"rename_field": {"field": "text", "target_field": "body"}}
    with serving(ml_engine.url, small) as url:
        termweave("connect", small, "--model-server", url)
        answer = ml_engine.request("POST", f"/{small}/_search", params={"search_pipeline": f"{small}-learned"}, body=body)
        for hit in answer["hits"]["hits"]:
            assert hit["_explanation"]["value"] == pytest.approx(hit["_score"])
        made = ml_engine.request("GET", path)[f"{small}-learned"]
        made["request_processors"].insert(0, before)
        made["response_processors"].append(after)
        ml_engine.request("PUT", path, body=made)
        for mode, ours in (("hybrid", 1), ("weights", 0), ("hybrid", 1)):
            termweave("connect", small, "--model-server", url, "--mode", mode)
            pipeline = ml_engine.request("GET", path)[f"{small}-learned"]
            assert [*map(next, map(iter, pipeline["request_processors"]))] == ["filter_query", "ml_inference"]
            names = ["hybrid_score_explanation"] * ours + ["rename_field"]
            assert sorted(map(next, map(iter, pipeline["response_processors"]))) == names
            assert len(pipeline.get("phase_results_processors", [])) == ours


def assert_numbers_of_enrich(termweave, engine, name, before):
    """Enrich, and compare what documents had before. A document without text has no numbers."""
    termweave("enrich", name)
    for key, source in ((key, each["termweave"]) for key, each in before.items()):
        after = engine.request("GET", f"/{name}/_doc/{key}")["_source"]["termweave"]
        assert after["id"] == source["id"] == key
        assert after.get("weights") == source.get("weights")
        assert after.get("vector") == pytest.approx(source.get("vector"), abs=1e-6)
        assert "encoding_digest" in after.keys() - source.keys()


@pytest.fixture
def enriched(fresh, termweave, ml_engine):
    """An index of an application with texts in `body` and `content`, which is enriched without naming fields."""
    ml_engine.request("PUT", f"/{fresh}", body={"settings": {"index.knn": True}})
    for key, text in DOCUMENTS.items():
        ml_engine.request("PUT", f"/{fresh}/_doc/{key}", body={"title": key, "body" if key == "csv" else "content": text})
    ml_engine.request("POST", f"/{fresh}/_refresh")
    termweave("enrich", fresh)
    return fresh


def ingest(engine, name, document, key=None):
    """Write a document as an application does; return its id and what the server stores."""
    method, path = ("PUT", f"/{name}/_doc/{key}") if key else ("POST", f"/{name}/_doc")
    made = engine.request(method, path, params={"pipeline": f"{name}-documents", "refresh": True}, body=document)["_id"]
    return made, engine.request("GET", f"/{name}/_doc/{made}")["_source"]


def test_fields_of_usual_names(termweave, enriched, search, ml_engine):
    with serving(ml_engine.url, enriched) as url:
        termweave("connect", enriched, "--model-server", url, "--documents", "--fallback")
        written = [
            ingest(ml_engine, enriched, {"title": "zip", "content": "Read and write ZIP archives."}),
            ingest(ml_engine, enriched, {"body": ["Compress data", "with gzip."]}, "gzip"),
            ingest(ml_engine, enriched, {"title": 7, "contents": "Taken.", "content": "Not taken."}, "first"),
            ingest(ml_engine, enriched, {"title": " "}, "blank"),
        ]
        zipped = written[0][0]
        assert all({"weights", "vector"} <= source["termweave"].keys() for _, source in written[:3])
        # termweave finds them before the next enrichment; an earlier encoding that an application writes back is replaced
        index = Index.open(ml_engine, enriched)
        for mode in ("weights", "dense", "hybrid"):
            assert index.search("read archives", mode=mode)[0].id == zipped
        stale = {**written[1][1]["termweave"], "vector_fp16": "stale"}
        changed = {**written[1][1], "body": "Count words in files.", "termweave": stale}
        written[1] = ingest(ml_engine, enriched, changed, "gzip")
        assert "vector_fp16" not in written[1][1]["termweave"]
        assert index.search("count words in files", mode="dense")[0].id == "gzip"
    late = ingest(ml_engine, enriched, {"title": "late", "content": "Written while the model server was down."}, "late")[1]
    assert late["termweave"] == {"id": "late"}
    # By BM25: the model server has ended.
    assert [hit["_id"] for hit in by_template(ml_engine, enriched, query="archives")] == [zipped]
    assert_numbers_of_enrich(termweave, ml_engine, enriched, dict(written))


def test_the_ingest_pipeline_stays_and_has_all_signals(termweave, enriched, ml_engine):
    with serving(ml_engine.url, enriched) as url:
        connect = ("connect", enriched, "--model-server", url, "--json")
        assert json.loads(termweave(*connect))["ingest_pipeline"] is None
        termweave(*connect, "--mode", "weights", "--documents")
        assert ingest(ml_engine, enriched, {"body": "words"})[1]["termweave"].keys() >= {"weights", "vector"}
        for mode in ("dense", "hybrid"):
            for options in (("--plan",), ()):
                said = json.loads(termweave(*connect, "--mode", mode, *options))
                assert said["ingest_pipeline"] == f"{enriched}-documents"
                assert any("stays (--remove removes it)" in note for note in said["notes"])
            assert ingest(ml_engine, enriched, {"body": "words"})[1]["termweave"].keys() >= {"weights", "vector"}
            assert len(ml_commons.models(ml_engine, f"{enriched}-weights")) == 1
    termweave("enrich", enriched, "--remove", "--yes")
    ml_engine.request("PUT", f"/{enriched}/_doc/inner", params={"refresh": True}, body={"about": {"text": "words"}})
    termweave("enrich", enriched, "--text-field", "about.text")
    refused = termweave("connect", enriched, status=2)
    assert "about.text lies inside another field" in refused
    assert f"'termweave connect {enriched} --remove'" in refused
    termweave("connect", enriched, "--remove")
    with pytest.raises(TermweaveError, match="404"):
        ml_engine.request("GET", f"/_ingest/pipeline/{enriched}-documents")


@pytest.mark.parametrize("part", ["/_ingest/pipeline/", "/_search/pipeline/"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineUnreachable("The server did not answer.", "Wait.")])
def test_models_that_a_pipeline_may_name_stay(termweave, enriched, search, ml_engine, monkeypatch, part, error):
    """The server does what it was asked for, but the command does not hear of it."""
    request = Engine.request

    def lost(self, method, path, **given):
        answer = request(self, method, path, **given)
        if method == "PUT" and path.startswith(part):
            raise error
        return answer

    with serving(ml_engine.url, enriched) as url:
        documents = part == "/_ingest/pipeline/"
        termweave("connect", enriched, "--model-server", url, *(["--documents"] if documents else []))
        planned = connection.plan(ml_engine, enriched, ConnectOptions(address=url, candidates=50, token="never asked for"))
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "request", lost)
            with pytest.raises(type(error)):
                connection.connect(ml_engine, planned)
        assert search(enriched, {"match": {"body": "words"}})
        if documents:
            assert "weights" in ingest(ml_engine, enriched, {"body": "words"})[1]["termweave"]
        termweave("connect", enriched, "--model-server", url)
        for name in model_names(enriched):
            assert len(ml_commons.models(ml_engine, name)) == (documents or name == f"{enriched}-query")


def test_a_refused_pipeline_leaves_no_models(enriched, ml_engine):
    with serving(ml_engine.url, enriched) as url:
        planned = connection.plan(ml_engine, enriched, ConnectOptions(address=url, documents=True))
        # The server refuses weights of this kind; the ingest pipeline is written before that.
        broken = replace(planned.connection, weights={"weights": -1.0, "dense": 0.5})
        with pytest.raises(EngineError, match="weight"):
            connection.connect(ml_engine, replace(planned, connection=broken))
        assert ml_commons.models(ml_engine, f"{enriched}-query") == []
        assert "weights" in ingest(ml_engine, enriched, {"body": "words"})[1]["termweave"]
