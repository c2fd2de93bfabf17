"""`index --keep-mapping`: queries of the old fields find the same with the same scores on the new alias."""

import pytest

from termweave.cli import run
from termweave.search import Index
from tests.indexer.builds import clean
from tests.indexer.enrichment.conftest import write

SETTINGS = {
    "number_of_shards": 2,
    "number_of_replicas": 0,
    "mapping.total_fields.limit": 1200,
    "analysis": {
        "filter": {"same": {"type": "synonym", "synonyms": ["sofa, couch"]}},
        "analyzer": {"shop": {"tokenizer": "standard", "filter": ["lowercase", "same", "porter_stem"]}},
    },
    "similarity": {"short": {"type": "BM25", "k1": 0.4, "b": 0.2}},
}
PROPERTIES = {
    "name": {"type": "text", "analyzer": "shop", "copy_to": "all", "fields": {"raw": {"type": "keyword"}}},
    "text": {"type": "text", "analyzer": "whitespace", "similarity": "short"},
    "all": {"type": "text", "store": True},
    "price": {"type": "scaled_float", "scaling_factor": 100},
    "tags": {"type": "keyword"},
    "day": {"type": "date"},
    "offers": {"type": "nested", "properties": {"shop": {"type": "keyword"}, "price": {"type": "float"}}},
    "made": {"properties": {"in": {"type": "keyword"}, "year": {"type": "integer"}}},
}
QUERIES = [
    {"match": {"name": "red couches"}},
    {"match_phrase": {"text": "Very soft"}},
    {"multi_match": {"query": "soft sofa", "fields": ["name^3", "text"]}},
    {"match": {"all": "blue"}},
    {"term": {"name.raw": "red sofa 12"}},
    {"nested": {"path": "offers", "query": {"range": {"offers.price": {"gt": 20}}}}},
    {"bool": {"should": [{"term": {"tags": "new"}}, {"range": {"price": {"gte": 12.5}}}], "filter": {"term": {"made.in": "de"}}}},
    {"function_score": {"query": {"match": {"text": "soft"}}, "field_value_factor": {"field": "price"}}},
]


def goods():
    colours, kinds = ("red", "blue", "green"), ("sofa", "chair", "couches", "table")
    for number in range(60):
        colour, kind = colours[number % 3], kinds[number % 4]
        yield {
            "name": f"{colour} {kind} {number}",
            "text": f"Very soft {kind}" + " and warm" * (number % 5),
            "price": number / 3,
            "tags": ["new", colour] if number % 2 else [],
            "offers": [{"shop": f"s{number % 3}", "price": number}, {"shop": "s1", "price": 1}],
            "made": {"in": "de" if number % 4 else "fr", "year": 2000 + number, "by": {"hand": True}},
            "day": f"202{number // 10}-06-15",
            "unmapped": number,
        }


@pytest.fixture
def shop(opensearch_engine, name):
    """The index NAME-shop of an application."""

    def make(properties, **mapping):
        index = f"{name}-shop"
        body = {"settings": SETTINGS, "mappings": {"dynamic": False, "properties": properties, **mapping}}
        opensearch_engine.request("PUT", f"/{index}", body=body)
        write(opensearch_engine, index, {f"p{number}": body for number, body in enumerate(goods())})
        return index

    return make


@pytest.fixture
def build(opensearch_engine, name, capsys):
    """A function that runs `termweave index --keep-mapping` and returns what it said."""

    def call(index, *arguments, status=0):
        words = ["index", f"opensearch:{index}", name, "--title-field", "name", "--weights", "none", "--dense", "none"]
        assert run([*words, "--url", opensearch_engine.url, *arguments]) == status
        return capsys.readouterr()

    return call


def test_the_applications_queries_find_the_same(shop, build, opensearch_engine, name, capsys, tmp_path):
    index = shop(PROPERTIES)
    settings = tmp_path / "settings.json"
    settings.write_text('{"index.mapping.total_fields.limit": 1500}')
    build(index, "--keep-mapping", "--settings", str(settings), "--shards", "2")
    (kept,) = opensearch_engine.of_indices(f"/{name}/_settings", "settings").values()
    assert kept["settings"]["index"]["mapping"]["total_fields"]["limit"] == "1500"  # what the user says wins
    assert clean(opensearch_engine, name) == 60
    for query in QUERIES:
        body = {"query": query, "size": 100, "sort": ["_score", {"made.year": "asc"}], "stored_fields": ["all"], "_source": True}
        old, new = (opensearch_engine.request("POST", f"/{which}/_search", body=body)["hits"]["hits"] for which in (index, name))
        found = [
            [(hit["_id"], hit["_score"], {each: hit["_source"][each] for each in PROPERTIES.keys() - {"all"}}) for hit in hits]
            for hits in (old, new)
        ]
        assert found[1] == found[0] != [], query
    found = Index.open(opensearch_engine, name)
    days = [len(found.search("blue red green", k=60, where=where)) for where in ("day<=2021", "day=2021", "day>2021")]
    assert days == [20, 10, 40]
    hits = found.search("blue chair", mode="lexical", where="price<5 AND unmapped>0")
    assert hits[0].fields["title"].startswith("blue chair")
    # an update takes the fields over, too, and does not do without them
    changed = {"doc": {"tags": ["changed"], "made": {"colour": "x"}}}
    opensearch_engine.request("POST", f"/{index}/_update/p7", params={"refresh": True}, body=changed)
    assert "Add --keep-mapping" in build(index, "--update", status=2).err
    assert "1 changed, 59 unchanged" in build(index, "--update", "--keep-mapping").out
    found = opensearch_engine.request("POST", f"/{name}/_search", body={"query": {"term": {"tags": "changed"}}})["hits"]["hits"]
    assert [hit["_id"] for hit in found] == ["p7"]
    assert clean(opensearch_engine, name) == 60
    assert run(["verify", name, f"opensearch:{index}", "--title-field", "name", "--url", opensearch_engine.url]) == 0


def test_conflicts_are_named_before_anything_is_made(shop, build, opensearch_engine, name):
    odd = {"id": {"type": "long"}, "metadata": {"type": "object"}, "vector": {"type": "keyword"}}
    index = shop({**PROPERTIES, **odd, "parent": {"type": "join", "relations": {"a": "b"}}})
    said = build(index, "--keep-mapping", "--passage-size", "50", "--shards", "3", status=2).err
    named = (
        "'id' (long) has the name",
        "'metadata' (object) has",
        "'parent' is of type join",
        "--passage-size stores",
        "--shards 3 is",
    )
    assert [part for part in named if part not in said] == []
    assert not opensearch_engine.request("HEAD", f"/{name}")
