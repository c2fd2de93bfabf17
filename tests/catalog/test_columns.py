"""Fields that a mapping declares are what the mapping says to every feature of a search, whoever declared them."""

import json

import termweave as tw
from termweave.cli import run
from tests.catalog.declared_fields import FIELDS, checked, documents, numbers, refused
from tests.indexer.enrichment.conftest import write

#: Types that OpenSearch has, and the tests' Elasticsearch has not.
MORE = {
    "price": {"type": "scaled_float", "scaling_factor": 100},
    "large": {"type": "unsigned_long"},
    "shop": {"type": "constant_keyword", "value": "ours"},
    "wild": {"type": "wildcard"},
    "flat": {"type": "flat_object"},
}
VALUES = {"price": lambda n: n * 2.02, "large": lambda n: 2**63 + n, "shop": lambda _: "ours"}
VALUES |= {"wild": lambda n: f"w{n % 3}", "flat": lambda n: {"a": f"v{n % 2}"}}


def of_opensearch(index):
    answer = index.answer("kettle", facets=["price:5/20", "price:50", "large", "shop", "wild"])
    assert "6.06" in {each.value for each in answer.facets["price:50"]}  # the server gives 6.0600000000000005
    for values in answer.facets.values():
        for each in values:
            assert len(numbers(index, where=each.filter)) == each.count, each
    assert [each.value for each in answer.facets["shop"]] == ["ours"]  # the server gives the name of the index
    assert (numbers(index, where=f"large={2**63 + 7}"), numbers(index, where="large<-1")) == ([7], [])
    assert numbers(index, sort="large:desc")[:2] == numbers(index, sort="price:desc")[:2] == [19, 18]
    assert "is a wildcard, which has no order" in refused(index, where="wild>w1")
    assert len(numbers(index, where="flat=v0")) == 10
    if index.layout.application:
        assert "'flat.a' lies in a flat_object" in refused(index, sort="flat.a")


def test_fields_of_a_mapping(opensearch_engine, name, tmp_path):
    path, mapping = tmp_path / "docs.jsonl", tmp_path / "mapping.json"
    path.write_text("\n".join(map(json.dumps, documents(**VALUES, plain=lambda n: n))), encoding="utf-8")
    mapping.write_text(json.dumps({"properties": FIELDS | MORE}), encoding="utf-8")
    built = ["index", str(path), name, "--signals", "lexical", "--mapping", str(mapping), "--url", opensearch_engine.url]
    assert run(built) == 0
    index = tw.connect(opensearch_engine.url).index(name)
    checked(index)
    of_opensearch(index)
    assert numbers(index, where="prose=words 3") == [3]  # metadata of any type are also compared as text


def test_fields_of_an_application(opensearch_engine, name):
    index = application_index(opensearch_engine, name, FIELDS | MORE, documents(**VALUES))
    checked(index)
    of_opensearch(index)
    assert "is analysed text" in refused(index, where="prose=words 3")
    assert "lies in the nested object 'parts'" in refused(index, sort="parts.size")


def application_index(engine, name, fields, filled):
    """An application's own index, with weights."""
    index = f"{name}-app"
    properties = {"title": {"type": "text"}, "text": {"type": "text"}, **fields}
    engine.request("PUT", f"/{index}", body={"mappings": {"properties": properties}})
    write(engine, index, {each.pop("id"): each for each in filled})
    assert run(["enrich", index, "--signals", "weights", "--url", engine.url]) == 0
    return tw.connect(engine.url).index(index)
