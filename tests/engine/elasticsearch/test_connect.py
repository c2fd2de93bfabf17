"""`termweave connect` on Elasticsearch.

The archive lacks the inference API, the retriever `linear` and search templates. A proxy before the genuine server takes and answers these
requests in the shapes that Elastic's documentation prints (`PUT _inference/TASK/ID` with the service `custom`, `GET _inference/_all`, the
retrievers, `_search/template`). It sends texts to a genuine model server, and what the archive knows to the archive.
"""

import json
import re
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

import termweave as tw
from termweave.engine import connect
from termweave.search import Index
from termweave.settings import load
from tests.engine.elasticsearch.conftest import own_name
from tests.engine.forwarding import ForwardingProxy
from tests.serving.connector.conftest import DOCUMENTS, answering, serving

pytestmark = pytest.mark.engine
#: Keys of `service_settings` of the service `custom`, and of its `json_parser` by task.
SETTINGS = {"url", "headers", "request", "response", "secret_parameters", "query_parameters", "input_type", "rate_limit"}
PARSERS = {"sparse_embedding": {"token_path", "weight_path"}, "text_embedding": {"text_embeddings"}}


class InferenceAPI(ForwardingProxy):
    """What the archive lacks, before the archive."""

    def __init__(self, url):
        super().__init__(url)
        self.server, self.endpoints, self.scripts, self.fails = url, {}, {}, {}
        self.licence, self.installed = "enterprise", True

    def intercept(self, method, path, headers, body):
        del headers
        path = path.partition("?")[0]
        sent = json.loads(body) if body.startswith(b"{") and b"\n" not in body else {}
        reply = None
        if (method, path) in self.fails:
            reply = error(*self.fails[method, path])
        elif path == "/_license":
            reply = answer({"license": {"status": "active", "type": self.licence}})
        elif path.startswith("/_inference/") and self.installed:
            reply = self.inference(method, path.split("/")[2:], sent)
        elif path.startswith("/_scripts/"):
            reply = self.script(method, path.rpartition("/")[2], sent)
        elif path.endswith("/_search/template"):
            reply = self.template(path.removesuffix("/template"), sent)
        return reply

    def inference(self, method, place, sent):
        endpoint = place[-1]
        if endpoint == "_all":
            return answer({"endpoints": [shown(each) for each in self.endpoints.values()]})
        if method == "DELETE":
            return answer({"acknowledged": True}) if self.endpoints.pop(endpoint, None) else error(404, "not found")
        if method == "PUT":
            assert re.fullmatch(r"[a-z0-9]([a-z0-9_.-]*[a-z0-9])?", endpoint)
            assert len(endpoint) <= 64
            assert sent["service"] == "custom"
            assert sent["service_settings"].keys() <= SETTINGS
            assert sent["service_settings"]["response"]["json_parser"].keys() == PARSERS[place[0]]
            assert all(isinstance(each, str) for each in sent["task_settings"]["parameters"].values())
        record = {"inference_id": endpoint, "task_type": place[0], **sent} if method == "PUT" else self.endpoints[endpoint]
        try:
            numbers(record, ["how big"])
        except HTTPError as failed:
            return error(400, f"Received an unsuccessful status code [{failed.code}]: {failed.read().decode()}")
        except (URLError, KeyError) as failed:
            return error(400, f"Could not complete inference endpoint creation: {failed}")
        self.endpoints[endpoint] = record
        return answer(shown(record))

    def script(self, method, name, sent):
        if method == "PUT":
            self.scripts[name] = sent["script"]
        found = self.scripts.pop(name, None) if method == "DELETE" else self.scripts.get(name)
        return error(404, "missing") if found is None else answer({"_id": name, "found": True, "script": found})

    def template(self, path, sent):
        text, params = self.scripts[sent["id"]]["source"], sent["params"]
        text = re.sub(r"{{!.*?}}", "", text)
        text = re.sub(r"{{\^(\w+)}}(.*?){{/\1}}", lambda found: "" if found[1] in params else found[2], text)
        text = re.sub(r"{{(\w+)}}", lambda found: json.dumps(params.get(found[1], "")).strip('"'), text)
        body = json.loads(text)
        retriever = body.pop("retriever")
        if "linear" not in retriever:
            return answer(self.search(path, {**body, "retriever": self.known(retriever)}))
        (scores, hits), fusion = ({}, {}), retriever["linear"]
        for each in fusion["retrievers"]:
            window = {"retriever": self.known(each["retriever"]), "size": fusion["rank_window_size"], "_source": body["_source"]}
            found = self.search(path, window)["hits"]["hits"]
            least, most = found[-1]["_score"], found[0]["_score"]
            assert each["normalizer"] == "minmax"
            for hit in found:
                part = each["weight"] * ((hit["_score"] - least) / (most - least) if most > least else 1.0)
                scores[hit["_id"]] = scores.get(hit["_id"], 0.0) + part
                hits[hit["_id"]] = hit
        best = sorted(scores, key=lambda key: -scores[key])[body["from"] :][: body["size"]]
        return answer({"hits": {"hits": [{**hits[key], "_score": scores[key]} for key in best]}})

    def known(self, retriever):
        """A retriever as the archive knows it: with numbers in the place of what asks for them."""
        ((kind, body),) = retriever.items()
        if kind == "knn":
            sent = body.pop("query_vector_builder")["text_embedding"]
            (body["query_vector"],) = numbers(self.endpoints[sent["model_id"]], [sent["model_text"]])
        elif "sparse_vector" in body["query"]:
            query = body["query"]["sparse_vector"]
            (query["query_vector"],) = numbers(self.endpoints[query.pop("inference_id")], [query.pop("query")])
        return {kind: body}

    def search(self, path, body):
        request = Request(f"{self.server}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
        with urlopen(request) as found:
            return json.load(found)


def answer(content):
    return 200, json.dumps(content).encode(), {"x-elastic-product": "Elasticsearch"}


def error(status, reason):
    content = {"error": {"type": "x", "reason": reason, "root_cause": [{"type": "x", "reason": reason}]}, "status": status}
    return status, json.dumps(content).encode(), {"x-elastic-product": "Elasticsearch"}


def shown(endpoint):
    """An endpoint as the server shows it: without its secrets."""
    settings = {key: value for key, value in endpoint["service_settings"].items() if key != "secret_parameters"}
    return {**endpoint, "service_settings": settings}


def numbers(endpoint, texts):
    """Ask the model server as an endpoint says: vectors, or term weights by term."""
    settings = endpoint["service_settings"]
    secrets = settings.get("secret_parameters", {})
    headers = {name: re.sub(r"\${(\w+)}", lambda found: secrets[found[1]], value) for name, value in settings["headers"].items()}
    body = settings["request"].replace("${input}", json.dumps(texts))
    with urlopen(Request(settings["url"], body.encode(), headers)) as response:
        rows = json.load(response)["data"]
    parser = settings["response"]["json_parser"]
    if "text_embeddings" in parser:
        assert parser["text_embeddings"] == "$.data[*].embedding[*]"
        return [row["embedding"] for row in rows]
    assert parser == {"token_path": "$.data[*].embedding[*].token", "weight_path": "$.data[*].embedding[*].weight"}
    return [{pair["token"]: pair["weight"] for pair in row["embedding"]} for row in rows]


def written(mode, score):
    """A score as the server writes it: an inner product below 0 is squeezed."""
    if mode == "weights":
        return score
    return 1 + score if score >= 0 else 1 / (1 - score)


@pytest.fixture(scope="module")
def small(elasticsearch_engine):
    """The name of an index of five documents."""
    documents = [{"id": key, "text": text} for key, text in DOCUMENTS.items()]
    with own_name(elasticsearch_engine) as prefix:
        tw.index(documents, prefix, connection=tw.connect(elasticsearch_engine.url), signals=["weights", "dense"])
        yield prefix


@pytest.fixture(scope="module")
def models(elasticsearch_engine, small):
    """The address of a model server."""
    with serving(elasticsearch_engine.url, small) as url:
        yield url


@pytest.fixture
def api(elasticsearch_engine, termweave, monkeypatch):
    """The proxy; the commands go through it."""
    with InferenceAPI(elasticsearch_engine.url) as proxy:
        monkeypatch.setenv("OPENSEARCH_URL", proxy.url)
        yield proxy


def searched(api, name, **params):
    """Ids and scores of the hits of a search that sends words only."""
    with connect(load(url=api.url)) as engine:
        found = engine.request("POST", f"/{name}/_search/template", body={"id": f"{name}-learned", "params": params})
    hits = found["hits"]["hits"]
    assert not any(hit["_source"].keys() & {"weights", "vector", "vector_fp16"} for hit in hits)
    return {hit["_id"]: hit["_score"] for hit in hits}


def test_words_get_learned_search(small, api, models, elasticsearch_engine, termweave):
    index, words = Index.open(elasticsearch_engine, small), 'run "code" later'
    plan = json.loads(termweave("connect", small, "--model-server", models, "--plan", "--json"))
    assert (plan["written"], plan["pipeline"], plan["template"]) == (False, None, f"{small}-learned")
    assert not api.endpoints
    for _ in range(2):  # again changes nothing
        assert "_search/template" in termweave("connect", small, "--model-server", models)
        assert {each["task_type"] for each in api.endpoints.values()} == {"sparse_embedding", "text_embedding"}
        assert len(api.endpoints) == 2
    lists = {mode: {hit.id: written(mode, hit.score) for hit in index.search(words, mode=mode)} for mode in ("weights", "dense")}
    (timer,) = lists["weights"]  # the only document with a word of the question
    low, high = min(lists["dense"].values()), max(lists["dense"].values())
    expected = {key: 0.5 * (key == timer) + 0.5 * (score - low) / (high - low) for key, score in lists["dense"].items()}
    ours = [hit.id for hit in index.search(words, mode="hybrid@min-max")]
    assert list(searched(api, small, query=words)) == ours
    assert searched(api, small, query=words) == pytest.approx(expected, abs=1e-5)
    assert list(searched(api, small, query=words, size=1, **{"from": 1})) == ours[1:2]
    for mode in ("weights", "dense"):
        before = set(api.endpoints)
        termweave("connect", small, "--model-server", models, "--mode", mode)
        assert len(api.endpoints) == 1
        assert set(api.endpoints) <= before or mode == "dense"
        found = searched(api, small, query=words)
        assert list(found) == list(lists[mode])
        assert found == pytest.approx(lists[mode], rel=1e-5)
    api.scripts["other"] = {"lang": "mustache", "source": "{}"}
    removed = json.loads(termweave("connect", small, "--remove", "--json"))["removed"]
    assert removed == [f"stored template {small}-learned", f"remote model {small}-dense"]
    assert (api.endpoints, list(api.scripts)) == ({}, ["other"])


def test_a_model_server_with_a_token(small, api, elasticsearch_engine, termweave, tmp_path):
    token = tmp_path / "token.txt"
    token.write_text("a-token-of-more-than-16-characters\n")
    with serving(elasticsearch_engine.url, small, "--token-file", str(token)) as url:
        assert "cannot use the model server" in termweave("connect", small, "--model-server", url, status=1)
        assert not api.endpoints
        for _ in range(2):
            termweave("connect", small, "--model-server", url, "--token-file", token)
            assert len(api.endpoints) == 2
        assert next(iter(searched(api, small, query="lists of strings"))) == "csv"
        assert token.read_text().strip() not in termweave("connect", small, "--model-server", url, "--plan", "--json")


def test_what_fails_leaves_nothing_and_what_is_not_ours_stays(small, api, models, termweave):
    for fault in ({"status": 503}, {"body": {"object": "list", "data": [{"vector": [1.0]}]}}):
        with answering(**fault) as url:
            said = termweave("connect", small, "--model-server", url, status=1)
            assert f"The cluster cannot use the model server at {url}" in said
    api.fails["PUT", f"/_scripts/{small}-learned"] = (403, "action [cluster:admin/script/put] is unauthorized")
    assert "cluster:admin/script/put" in termweave("connect", small, "--model-server", models, status=1)
    assert (api.endpoints, api.scripts) == ({}, {})
    assert "was not connected" in termweave("connect", small, "--remove")
    api.scripts[f"{small}-learned"] = {"lang": "mustache", "source": "{}"}
    assert "that termweave did not make" in termweave("connect", small, "--remove", status=2)


@pytest.mark.parametrize(
    ("licence", "installed", "options", "reason"),
    [
        ("basic", True, ["--plan"], "licence 'basic'"),
        ("trial", False, [], "lacks the inference API"),
        ("enterprise", True, ["--fallback"], "has no fallback search"),
        ("trial", True, ["--documents"], "no ingest pipeline on Elasticsearch"),
        ("trial", True, ["--mode", "lexical"], "no signal 'lexical'"),
    ],
)
def test_what_cannot_be_connected(small, api, termweave, licence, installed, options, reason):
    api.licence, api.installed = licence, installed
    assert reason in termweave("connect", small, *options, status=2)
