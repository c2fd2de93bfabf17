"""The model server: numbers that are exactly those of an index, OpenAI's form, and a sentence for every mistake."""

import base64
import gc
import json
import shutil
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from termweave import encoders
from termweave.catalog.lineage import ModelLineage, read_lineage, store_lineage
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.errors import ModelError, UsageError
from termweave.indexer.generations import publication
from termweave.records import Document
from termweave.search import Index
from termweave.serving.model_server import encoding_queue, request_bodies, served_models
from termweave.ui.protection import limits
from tests.ui.conftest import DOCUMENTS, TOKEN, built, models_of, requests_of_every_kind

SHIPPED = "508e65cdb08deb3f"


@pytest.fixture(scope="module")
def alone():
    """A program at a server of the shipped model, without a cluster."""
    client = models_of(None, served=("shipped",))
    client.app.state.warm()
    return client


@pytest.fixture(scope="module")
def beside(opensearch_engine, attacked):
    """A program at a server of the models of an index."""
    return models_of(opensearch_engine, index=attacked, served=("shipped",))


def given(client, path, model, texts, **fields):
    answer = client.post(f"/v1/{path}", json={"model": model, "input": texts, **fields})
    assert answer.status_code == 200, answer.text
    return [row["embedding"] for row in answer.json()["data"]]


def test_documents_get_the_numbers_that_the_index_stores(beside, opensearch_engine, attacked):
    ids = list(DOCUMENTS)
    answer = opensearch_engine.request("POST", f"/{attacked}/_mget", body={"ids": ids})
    stored = [each["_source"] for each in answer["docs"]]
    texts = [Document(each["id"], each["text"], each["title"]).content for each in stored]
    model = f"{SHIPPED}@{attacked}"
    assert given(beside, "sparse", model, texts, input_type="document") == [each.get("weights", {}) for each in stored]
    vectors = given(beside, "embeddings", model, texts, input_type="document")
    np.testing.assert_array_equal(np.float32(vectors), np.float32([each["vector"] for each in stored]))


def test_a_client_that_sends_the_numbers_of_a_query_gets_the_scores_of_a_search(beside, opensearch_engine, attacked):
    index, query = Index.open(opensearch_engine, attacked), "run a function after 3.5 s, later, later"
    model = f"minilm-l6-anchored@{attacked}"
    (features,) = given(beside, "sparse", model, query)
    clauses = [{"rank_feature": {"field": f"weights.{name}", "boost": w, "linear": {}}} for name, w in features.items()]
    (vector,) = given(beside, "embeddings", model, query, input_type="query")
    bodies = {"weights": {"bool": {"should": clauses}}, "dense": {"knn": {"vector": {"vector": vector, "k": 100}}}}
    for mode, body in bodies.items():
        hits = opensearch_engine.request("POST", f"/{attacked}/_search", body={"size": 10, "query": body})["hits"]["hits"]
        searched, scores = index.search(query, mode=mode, k=10), [hit["_score"] for hit in hits]
        assert [hit["_source"]["id"] for hit in hits] == [hit.id for hit in searched]
        products = scores if mode == "weights" else [score - 1 if score >= 1 else 1 - 1 / score for score in scores]
        assert products == pytest.approx([hit.score for hit in searched], rel=1e-5)


@pytest.fixture
def build_generation(opensearch_engine, name, tmp_path):
    """A function that builds a generation of three texts with some options, and returns its name."""
    documents = [{"_id": key, "text": text} for key, (_, text) in [*DOCUMENTS.items()][:3]]
    return partial(built, opensearch_engine, name, tmp_path, *documents)


def test_vectors_of_bytes_are_whole_numbers(build_generation, name, opensearch_engine):
    build_generation(vectors="byte")
    client = models_of(opensearch_engine, index=name)
    stored = opensearch_engine.request("GET", f"/{name}/_search")["hits"]["hits"][0]["_source"]
    (vector,) = given(client, "embeddings", f"{SHIPPED}@{name}", stored["text"], input_type="document")
    assert vector == stored["vector"]
    (query,) = given(client, "embeddings", f"{SHIPPED}@{name}", stored["text"])
    assert max(map(abs, query)) == 127


def test_an_index_with_another_model_is_never_answered_for(build_generation, name, opensearch_engine):
    """Another generation is published, or the generation gets another model as `index --update --dense-query` gives it."""
    generation = build_generation()
    client = models_of(opensearch_engine)
    body = {"model": f"{SHIPPED}@{name}", "input": "function"}
    assert given(client, "sparse", body["model"], "function")[0]
    build_generation(weights="bm25-german", dense="none", signals=["lexical", "weights"])
    client.app.state.models.generations.seconds = 0.0
    answer = client.post("/v1/sparse", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "bm25-german" in answer.json()["error"]["message"]
    gc.collect()
    assert len(client.app.state.models._encoders) == 1
    publication.promote(opensearch_engine, name, publication.previous(opensearch_engine, name), "rollback")
    assert given(client, "embeddings", body["model"], "function")[0]
    stored = read_lineage(opensearch_engine, generation)
    other = replace(stored, models={**stored.models, "dense": ModelLineage("elsewhere", "0" * 16)})
    store_lineage(opensearch_engine, generation, other)
    answer = client.post("/v1/embeddings", json=body)
    assert (answer.status_code, "'elsewhere'" in answer.json()["error"]["message"]) == (404, True)
    assert client.get("/v1/models").json()["data"]


def test_all_live_indices_are_served(opensearch_engine, attacked):
    client = models_of(opensearch_engine, served=("shipped",))
    listed = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert listed[SHIPPED]["kinds"] == ["embeddings", "sparse"]
    assert listed[f"{SHIPPED}@{attacked}"] == {**listed[SHIPPED], "id": f"{SHIPPED}@{attacked}", "index": attacked}
    client.app.state.warm()
    assert client.get("/ready").json()["status"] == "ready"
    assert client.post("/v1/sparse", json={"model": f"{SHIPPED}@no-such-index", "input": "a"}).status_code == 404


def test_a_model_alone_gives_what_the_library_gives(alone):
    encoder = encoders.load("shipped", "shipped")
    texts = ["parse json", "Run a function after a delay", "自然语言处理", "3.5 %"]
    for kind in ("query", "document"):
        made = encoder.encode(texts, kind=kind)
        vectors = given(alone, "embeddings", SHIPPED, texts, input_type=kind)
        np.testing.assert_array_equal(np.float32(vectors), [each.vector for each in made])
        coded = given(alone, "embeddings", "shipped", texts, input_type=kind, encoding_format="base64")
        decoded = [np.frombuffer(base64.b64decode(each), "<f4") for each in coded]
        np.testing.assert_array_equal(decoded, [each.vector for each in made])
        weights = [each.weights.as_dict() for each in made]
        assert given(alone, "sparse", SHIPPED, texts, input_type=kind) == weights
        pairs = given(alone, "sparse", SHIPPED, texts, input_type=kind, encoding_format="pairs")
        assert [{pair["token"]: pair["weight"] for pair in row} for row in pairs] == weights
    answer = alone.post("/v1/embeddings", json={"model": SHIPPED, "input": texts[:2]}).json()
    assert answer["usage"] == {"prompt_tokens": sum(encoder.lengths(texts[:2])), "total_tokens": sum(encoder.lengths(texts[:2]))}
    long = alone.post("/v1/embeddings", json={"model": SHIPPED, "input": "tea " * 50_000}).json()
    assert long["usage"]["total_tokens"] == encoder.models["dense"].max_length  # what the model cannot read is not counted
    assert (answer["object"], answer["model"], [row["index"] for row in answer["data"]]) == ("list", SHIPPED, [0, 1])


MISTAKES = [
    (b"", 400, "not JSON"),
    (b'{"model": "shipped", "input": "\\ud800"}', 400, "not JSON"),
    (b'{"input": "a"}', 400, "'model' is not a name"),
    (b'{"model": "shipped"}', 400, "'input' is missing"),
    (b'{"model": "shipped", "input": 7}', 400, "'input' is a number"),
    (b'{"model": "shipped", "input": []}', 400, "an empty list"),
    (b'{"model": "shipped", "input": ["a", " \\n"]}', 400, "'input[1]' is an empty text"),
    (b'{"model": "shipped", "input": "a", "input_typ": "query"}', 400, "no field 'input_typ'"),
    (b'{"model": "shipped", "input": "a", "input_type": "passage"}', 400, "neither 'query' nor 'document'"),
    (b'{"model": "shipped", "input": "a", "encoding_format": "hex"}', 400, "neither 'float' nor"),
    (b'{"model": "shipped", "input": "a", "dimensions": 7.5}', 400, "not a whole number"),
    (b'{"model": "shipped", "input": "a", "dimensions": 99}', 400, "have 384 numbers"),
    (b'{"model": "no-such-model", "input": "a"}', 404, "Served: 508e65cdb08deb3f (shipped)"),
    (b'{"model": "shipped@docs", "input": "a"}', 404, "'docs' is not served"),
    (json.dumps({"model": "shipped@" + "x" * 256, "input": "a"}).encode(), 404, "at most 255 bytes, and this one has 256"),
    (json.dumps({"model": "x" * 6_000, "input": "a"}).encode(), 422, "'model' has 6,000 characters; the most is 5,000"),
    (json.dumps({"model": "shipped", "input": ["a"] * 2049}).encode(), 422, "2,049 texts"),
    (json.dumps({"model": "shipped", "input": "word " * 2_000_000}).encode(), 422, "10,000,000 characters"),
]


@pytest.mark.parametrize(("body", "status", "reason"), MISTAKES)
def test_a_mistake_is_a_sentence_in_the_form_of_openai(alone, body, status, reason):
    for path in ("embeddings", "sparse"):
        if path == "sparse" and b'"dimensions": 99' in body:
            continue
        answer = alone.post(f"/v1/{path}", content=body, headers={"content-type": "application/json"})
        error = answer.json()["error"]
        assert (answer.status_code, reason in error["message"], error["type"]) == (status, True, "invalid_request_error")


def test_a_body_that_is_too_large_is_refused(alone, monkeypatch):
    monkeypatch.setattr(limits, "LARGEST", 100)
    answer = alone.post("/v1/embeddings", content=b" " * 101, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_pages_of_other_sites_and_other_hosts_are_refused(alone):
    for headers, status in (
        ({"content-type": "Application/JSON; charset=utf-8"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"content-type": "text/plain"}, 403),
        ({"host": "evil.example"}, 400),
    ):
        sent = {"content-type": "application/json", **headers}
        answer = alone.post("/v1/embeddings", content=b'{"model": "shipped", "input": "a"}', headers=sent)
        assert (answer.status_code, status == 200 or bool(answer.json()["error"]["message"])) == (status, True), headers


def test_a_token_is_asked_for():
    client = models_of(None, served=("shipped",), token=TOKEN)
    right, odd = ({"authorization": f"Bearer {token}".encode()} for token in (TOKEN, "ünsound"))
    for path in ("/v1/models", "/metrics", "/openapi.json", "/"):
        answer = client.get(path, headers=odd if path == "/" else None)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert client.get("/health").status_code == 200
    assert client.get("/ready").json() == {"status": "opening"}
    assert "reason" in client.get("/ready", headers=right).json()
    assert client.get("/v1/models", headers=right).status_code == 200
    assert [client.get("/v1/models", headers=odd).status_code for _ in range(12)][-1] == 429


@pytest.mark.parametrize(("name", "said"), [("/etc", "folder"), ("bm25-german", "need the statistics of an index")])
def test_a_model_that_cannot_be_served_alone_is_named(name, said):
    with pytest.raises((UsageError, ModelError), match=said):
        models_of(None, served=(name,))


def test_two_models_of_one_name_are_told_apart(tmp_path):
    folders = [shutil.copytree(resolve("shipped"), tmp_path / place / "mine") for place in "ab"]
    for folder, hash_ in zip(folders, ("1" * 16, "2" * 16), strict=True):
        write_manifest(folder, replace(read_folder(folder).manifest, hash=hash_))
    client = models_of(None, served=tuple(map(str, folders)))
    answer = client.post("/v1/sparse", json={"model": "minilm-l6-anchored", "input": "a"})
    assert (answer.status_code, f"{'1' * 16} and {'2' * 16}" in answer.json()["error"]["message"]) == (404, True)
    assert given(client, "sparse", "2" * 16, "function")[0]


def test_a_model_has_several_names_and_its_folder_may_vanish(tmp_path):
    """Before the model is open the server is not ready, and says why; afterwards nothing is missed."""
    folder = shutil.copytree(resolve("shipped"), tmp_path / "mine")
    client = models_of(None, served=(str(folder), "shipped"))
    models = client.app.state.models
    assert (models.find(str(folder)) is models.find("shipped"), len(models.all())) == (True, 1)
    hidden = folder.rename(tmp_path / "hidden")
    with pytest.raises(ModelError):
        models._open()
    answer = client.post("/v1/embeddings", json={"model": str(folder), "input": "a"})
    assert (answer.status_code, "mine" in answer.json()["error"]["message"]) == (500, True)
    hidden.rename(folder)
    client.app.state.warm()
    assert client.get("/ready").status_code == 200
    shutil.rmtree(folder)
    assert given(client, "sparse", str(folder), "function")[0]


def test_without_a_cluster_models_that_are_named_are_served(unreachable, monkeypatch):
    client = models_of(unreachable, served=("shipped",))
    monkeypatch.setattr(served_models, "_LISTED", 0.05)
    opening = threading.Thread(target=client.app.state.warm)
    opening.start()
    assert given(client, "sparse", "shipped", "function")[0]
    while "being opened" in client.get("/ready").json()["reason"]:
        time.sleep(0.05)
    asked = client.post("/v1/sparse", json={"model": f"{SHIPPED}@docs", "input": "a"})
    for answer in (client.get("/ready"), asked):
        assert (answer.status_code, "127.0.0.1:9" in answer.text) == (503, True)
    assert not client.app.state.models.generations._opening  # what was asked for in vain is forgotten
    client.app.state.models.ready = True
    opening.join(60)
    assert not opening.is_alive()


def test_a_full_queue_is_503_with_retry_after(alone, monkeypatch):
    monkeypatch.setattr(alone.app.state.queue, "_texts", encoding_queue.MOST_WAITING)
    answer = alone.post("/v1/sparse", json={"model": SHIPPED, "input": "e"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "4,096 texts wait" in answer.json()["error"]["message"]


def test_metrics_count_requests_texts_and_batches(alone):
    given(alone, "sparse", SHIPPED, ["a function"] * 3)
    alone.post("/v1/sparse", json={"model": "nothing", "input": "a"})
    values = dict(line.rsplit(" ", 1) for line in alone.get("/metrics").text.splitlines() if not line.startswith("#"))
    for status in (200, 404):
        assert int(values[f'termweave_requests_total{{endpoint="sparse",status="{status}"}}']) >= 1
    assert int(values['termweave_texts_total{endpoint="sparse"}']) >= 3
    assert values["termweave_queue_texts"] == "0"
    assert values['termweave_batch_texts_bucket{le="+Inf"}'] == values["termweave_batch_texts_count"]
    assert float(values['termweave_request_seconds_sum{endpoint="sparse"}']) > 0


def test_requests_of_every_kind_are_answered_as_described(alone):
    tried = requests_of_every_kind(alone.app, "/openapi.json")
    assert tried == {"/v1/embeddings", "/v1/sparse", "/v1/query", "/v1/models", "/health", "/ready", "/metrics"}


def test_the_document_states_the_bounds_of_a_request(alone):
    assert request_bodies.MOST_TEXTS <= encoding_queue.MOST_WAITING
    document = alone.get("/openapi.json").json()
    assert document["components"]["schemas"]["text"]["maxLength"] == request_bodies.LONGEST
    for endpoint, forms in request_bodies.FORMATS.items():
        body = document["paths"][f"/v1/{endpoint}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["properties"].keys() == request_bodies.FIELDS
        assert body["properties"]["input"]["anyOf"][1]["maxItems"] == request_bodies.MOST_TEXTS
        assert body["properties"]["encoding_format"] == {"enum": [*forms, None], "default": forms[0]}
