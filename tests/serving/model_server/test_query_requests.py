"""`/v1/query`: the query of an application becomes the query that termweave sends."""

import pytest

import termweave as tw
from termweave.indexer.options import Window
from termweave.search import Index
from tests.ui.conftest import models_of

SHIPPED = "508e65cdb08deb3f"
WORDS = {"match": {"text": "run a function later"}}


def nested(times, query=WORDS):
    for _ in range(times):
        query = {"bool": {"must": query}}
    return query


def asking(engine, index, models):
    """Send a query as the search pipeline of an index does; fields replace those that it sends."""
    client = models_of(engine, index=index)
    usual = {"index": index, "models": models, "signals": [*models], "depth": 20}
    return lambda query, **fields: client.post("/v1/query", json={**usual, "query": query, **fields})


@pytest.fixture(scope="module")
def ask(opensearch_engine, attacked):
    return asking(opensearch_engine, attacked, {"weights": SHIPPED, "dense": SHIPPED})


def test_the_query_is_the_one_that_termweave_sends(ask, opensearch_engine, attacked):
    query, index = ask(WORDS).json()["query"], Index.open(opensearch_engine, attacked)
    requests = index.requests("run a function later", mode="hybrid@min-max", server_fusion=True, candidates=20)
    ours = requests[0]["body"][1]["query"]["hybrid"]
    assert query["hybrid"]["pagination_depth"] == ours["pagination_depth"] == 20
    sparse, vector = query["hybrid"]["queries"]
    assert sparse == ours["queries"][0]
    assert vector["knn"]["vector"]["vector"] == pytest.approx(ours["queries"][1]["knn"]["vector"]["vector"].tolist(), abs=1e-7)


def test_filters_are_in_every_clause(ask):
    only = {"terms": {"id": ["json"]}}
    sparse, vector = ask({"bool": {"must": [WORDS], "filter": [only]}}).json()["query"]["hybrid"]["queries"]
    assert sparse["bool"]["filter"] == [only]
    assert vector["knn"]["vector"]["filter"] == {"bool": {"filter": [only]}}


def test_there_is_a_clause_for_each_weight_of_the_pipeline(ask):
    sparse, vector = ask({"match": {"text": "!!!"}}).json()["query"]["hybrid"]["queries"]
    assert sparse == {"match_none": {}}
    assert "knn" in vector
    assert "neural_sparse" in ask(WORDS, signals=["weights"], models={"weights": SHIPPED}).json()["query"]


def test_a_query_without_words_comes_back_and_one_may_be_deep(ask):
    for query in ({"match_all": {}}, {"query_string": {"query": "title:json"}}, nested(99, {"match_all": {}})):
        assert ask(query).json() == {"query": query}
    assert ask(nested(98)).json()["query"] == ask(WORDS).json()["query"]
    assert ask({"bool": {"must": WORDS, "filter": nested(97)}}).status_code == 200


@pytest.mark.parametrize(
    ("query", "fields", "status", "message"),
    [
        (WORDS, {"models": {"dense": "0" * 16}}, 404, f"has the dense model {SHIPPED}, and its search pipeline was made for"),
        (WORDS, {"signals": ["learned"]}, 404, "does not have the signal 'learned' any more"),
        (WORDS, {"index": "another"}, 400, "The index 'another' is not served here"),
        (WORDS, {"depth": "20"}, 400, "The body is not index (str), models (dict), signals (list), depth (int), query (dict)"),
        (WORDS, {"signals": ["dense"] * 20_000}, 400, "'signals' or 'depth' has an invalid value"),
        ({"bool": {"must": WORDS, "filter": [{"term": {"id": "x" * 5000}}] * 2000}}, {}, 422, "The filters of the query"),
        (nested(100), {}, 422, "more than 200 objects and lists inside one another"),
        ({"match": {"text": "a " * 600_000}}, {}, 422, "The text of the query has 1,200,000 characters"),
        (WORDS, {"index": "x" * 300}, 400, "at most 255 bytes"),
        ({"nested": {"path": "x", "query": WORDS}}, {}, 400, "cannot be taken out of 'nested'"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(ask, query, fields, status, message):
    answer = ask(query, **fields)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


def test_an_index_that_has_passages_since_connect_is_refused(opensearch_engine, name):
    documents = [{"id": "timer", "text": "Run a function later. " * 20}]
    tw.index(documents, name, connection=tw.connect(opensearch_engine.url), signals=("weights",), passages=Window(20, 10))
    refused = asking(opensearch_engine, name, {"weights": SHIPPED})(WORDS)
    assert (refused.status_code, "holds passages now" in refused.json()["error"]["message"]) == (404, True)
