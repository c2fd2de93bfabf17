"""An index of Elasticsearch as a source: for Elasticsearch itself, and for OpenSearch."""

import json

import pytest

from termweave.cli import run
from tests.corpora.index.conftest import write

pytestmark = pytest.mark.engine
FIELDS = ("--title-field", "name", "--text-field", "description")
LEXICAL = ("--weights", "none", "--dense", "none", "--analyzer", "standard")
VECTORS = {"embedding": {"type": "dense_vector", "dims": 2}, "terms": {"type": "sparse_vector"}}
MAPPING = {"name": {"type": "text"}, "description": {"type": "text"}, "price": {"type": "integer"}, **VECTORS}


def product(number):
    texts = {"name": f"name {number}", "description": f"first {number}"}
    return {**texts, "price": number, "embedding": [1.0, number], "terms": {"one": 1.0}}


@pytest.fixture
def termweave(capsys, monkeypatch):
    """Run a verb in this process for a server; returns all that it printed."""

    def call(url, *arguments, status=0):
        monkeypatch.setenv("TERMWEAVE_URL", url)
        ended = run([str(each) for each in arguments])
        printed = "".join(capsys.readouterr())
        assert ended == status, printed
        return printed

    return call


@pytest.fixture
def shop(elasticsearch_engine, elastic_name):
    """The index NAME-shop of an application, in two shards, and a function that writes to it."""
    index = f"{elastic_name}-shop"
    body = {"settings": {"number_of_shards": 2, "number_of_replicas": 0}, "mappings": {"properties": MAPPING}}
    elasticsearch_engine.request("PUT", f"/{index}", body=body)

    def fill(documents, *, gone=()):
        write(elasticsearch_engine, index, documents)
        for identity in gone:
            elasticsearch_engine.request("DELETE", f"/{index}/_doc/{identity}", params={"refresh": True})

    fill({f"p{number}": product(number) for number in range(60)})
    fill.index = index
    return fill


def test_it_is_built_updated_and_verified(termweave, elasticsearch_node, elastic_name, shop):
    source = f"elasticsearch:{shop.index}"
    build = ("index", source, elastic_name, *FIELDS)
    said = termweave(elasticsearch_node, *build, *LEXICAL)
    assert "60 documents" in said
    assert f"{source}: fields of vectors are not read: embedding (dense_vector), terms (sparse_vector)." in said
    shop({"p3": {"name": "name 3", "description": "second"}, "new": {"description": "new"}}, gone=["p4"])
    changed = json.loads(termweave(elasticsearch_node, *build, "--update", "--delete-missing", "--plan", "--json", "--quiet"))
    assert changed["counts"] == {"new": 1, "changed": 1, "unchanged": 58, "gone": 1, "refused": 0}
    assert "1 new, 1 changed, 58 unchanged" in termweave(elasticsearch_node, *build, "--update", "--delete-missing")
    shop({"p7": {"name": "name 7", "description": "third"}}, gone=["p8"])
    since = ("--update", "--since", "_seq_no", "--delete-missing")
    assert "1 changed" in termweave(elasticsearch_node, *build, *since)
    assert "59 documents, all there" in termweave(elasticsearch_node, "verify", elastic_name, "--deep")
    assert f"as in {source}" in termweave(elasticsearch_node, "verify", elastic_name, source, *FIELDS)
    found = json.loads(termweave(elasticsearch_node, "search", elastic_name, "third", "--json"))["hits"]
    assert [each["id"] for each in found] == ["p7"]


def test_an_index_of_elasticsearch_moves_to_opensearch(termweave, opensearch_engine, name, elasticsearch_node, shop, tmp_path):
    query = tmp_path / "query.json"
    query.write_text('{"range": {"price": {"lt": 50}}}')
    source = f"{elasticsearch_node}/{shop.index}"
    options = (*FIELDS, *LEXICAL, "--source-query", query, "--source-rate", "5000")
    assert "50 documents" in termweave(opensearch_engine.url, "index", source, name, *options)
    hits = json.loads(termweave(opensearch_engine.url, "search", name, "name 17", "--json"))["hits"]
    assert hits[0]["id"] == "p17"
    query.write_text('{"rage": {}}')
    said = termweave(opensearch_engine.url, "index", source, name, *options, status=2)
    assert "refuses the query of the source" in said


def test_the_applications_queries_find_the_same_with_the_same_scores(termweave, elasticsearch_engine, elastic_name, shop):
    build = ("index", f"elasticsearch:{shop.index}", elastic_name, *FIELDS, *LEXICAL)
    said = termweave(elasticsearch_engine.url, *build, "--keep-mapping", status=2)
    assert "'embedding' is of type dense_vector; 'terms' is of type sparse_vector" in said
    plain = f"{elastic_name}-plain"
    analysis = {
        "filter": {"pairs": {"type": "shingle"}, "without": {"type": "stop", "stopwords": ["first"]}},
        "analyzer": {"shop": {"tokenizer": "standard", "filter": ["lowercase", "without", "pairs"]}},
    }
    mapping = {
        "name": {"type": "text", "analyzer": "shop", "copy_to": "all", "fields": {"raw": {"type": "keyword"}}},
        "description": {"type": "text", "similarity": "short"},
        "all": {"type": "text"},
        "price": {"type": "integer"},
        "offers": {"type": "nested", "properties": {"shop": {"type": "keyword"}, "price": {"type": "float"}}},
    }
    settings = {"number_of_shards": 2, "analysis": analysis, "similarity": {"short": {"type": "BM25", "k1": 0.4, "b": 0.2}}}
    body = {"settings": settings, "mappings": {"dynamic": False, "properties": mapping}}
    elasticsearch_engine.request("PUT", f"/{plain}", body=body)
    goods = {
        f"p{number}": {
            "name": f"First red sofa p{number}" if number % 2 else f"name {number}",
            "description": f"first {number}",
            "price": number,
            "offers": [{"shop": f"s{number % 3}", "price": number}, {"shop": "s1", "price": 1}],
            "unmapped": {"colour": "red"},
        }
        for number in range(60)
    }
    write(elasticsearch_engine, plain, goods)
    build = ("index", f"elasticsearch:{plain}", elastic_name, *FIELDS, *LEXICAL)
    termweave(elasticsearch_engine.url, *build, "--keep-mapping")
    offers = [{"term": {"offers.shop": "s1"}}, {"range": {"offers.price": {"gt": 20}}}]
    for query in (
        {"match": {"description": "first 17"}},
        {"match": {"name": "RED sofa"}},
        {"match": {"all": "sofa p7"}},
        {"term": {"name.raw": "First red sofa p9"}},
        {"nested": {"path": "offers", "query": {"bool": {"must": offers}}}},
        {"multi_match": {"query": "name 5", "fields": ["name^2", "description"]}},
        {"bool": {"must": {"match_phrase": {"name": "red sofa p9"}}, "filter": {"range": {"price": {"lte": 9}}}}},
    ):
        answers = [
            elasticsearch_engine.request("POST", f"/{index}/_search", body={"query": query, "size": 60})["hits"]["hits"]
            for index in (plain, elastic_name)
        ]
        theirs, ours = ({hit["_id"]: hit["_score"] for hit in hits} for hits in answers)
        assert theirs, query
        assert ours == theirs, query
        for hit in answers[1]:
            assert all(hit["_source"][name] == goods[hit["_id"]][name] for name in mapping if name != "all")


def test_an_index_with_vectors_of_its_own_is_not_enriched(termweave, elasticsearch_engine, shop):
    before = elasticsearch_engine.request("GET", f"/{shop.index}")
    for more in ((), ("--signals", "weights")):
        said = termweave(elasticsearch_engine.url, "enrich", shop.index, *FIELDS, *more, status=2)
        assert "may not give back as they were written: embedding (dense_vector), terms (sparse_vector)" in said
    assert elasticsearch_engine.request("GET", f"/{shop.index}") == before
