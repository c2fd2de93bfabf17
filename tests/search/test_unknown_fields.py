"""A field that nobody knows is an error with the nearest name, behind every option that names one, in built and in enriched indices."""

import pytest

import termweave as tw
from termweave.cli import run
from termweave.errors import UsageError
from tests.indexer.enrichment import conftest

shop, enrich = conftest.shop, conftest.enrich
NEAR = [
    (("--filter", "prise<50"), "price"),
    (("--filter", "NOT brnd=Ken*"), "brand"),
    (("--filter", "metadata.brnd IN (a, b)"), "brand"),
    (("--collapse", "brnd:2"), "brand"),
    (("--facet", "prise:10/20"), "price"),
    (("--sort", "prise:desc"), "price"),
    (("--fields", "price,titel"), "title"),
    (("--rerank", "boost@prise:0.2"), "price"),
    (("--rerank", "match@brnd:0.2"), "brand"),
]


@pytest.fixture(params=["built", "enriched"])
def products(request, opensearch_engine, name, shop, enrich):
    """The name of an index with prices and brands."""
    documents = [
        {"id": f"p{n}", "title": f"Kettle {n}", "text": "boils water", "price": n, "brand": "ab"[n % 2]} for n in range(4)
    ]
    documents[1] |= {"story": "long " * 100}
    if request.param == "built":
        tw.index(documents, name, connection=tw.connect(opensearch_engine.url), dense="none", analyzer="standard")
        return name
    kinds = {"title": "text", "text": "text", "price": "integer", "brand": "keyword", "story": "text"}
    index = shop({each: {"type": kind} for each, kind in kinds.items()}, dynamic=True)
    for each in documents:
        opensearch_engine.request("PUT", f"/{index}/_doc/{each.pop('id')}", params={"refresh": True}, body=each)
    enrich(index, "--signals", "weights", fields=("--text-field", "text", "--title-field", "title"))
    return index


def test_a_field_that_nobody_knows_is_an_error_with_the_nearest_name(products, opensearch_engine, capsys):
    for option, near in NEAR:
        assert run(["search", products, "kettle", *option, "--url", opensearch_engine.url]) == 2, option
        assert f"Did you mean {near!r}?" in capsys.readouterr().err, option
    index = tw.connect(opensearch_engine.url).index(products)
    with pytest.raises(UsageError, match="has a field 'zzz'"):
        index.explain("kettle", "p1", where="zzz=3")


def test_a_field_that_a_document_has_is_known_and_whether_one_has_it_may_be_asked(products, opensearch_engine):
    index = tw.connect(opensearch_engine.url).index(products)
    (hit,) = index.search("kettle", where="id=p2", fields=["story", "price"])  # not in this document, but in another
    assert "story" not in str(hit.fields)
    (hit,) = index.search("kettle", where="id=p1", fields=["story"])
    assert "long long" in str(hit.fields)
    (remark,) = index.answer("kettle", fields=["prize*"]).remarks
    assert remark == "Neither these hits nor the index's mapping have a field 'prize*'."
    # An application that leaves out what was withdrawn works, too, before anything is.
    answer = index.answer("kettle", where="NOT exists(brnd)", mode="weights")
    assert {"p0", "p1", "p2", "p3"} <= {hit.id for hit in answer.hits}
    assert "No document has a field 'brnd'. Did you mean 'brand'?" in answer.remarks
    assert not index.search("kettle", where="exists(withdrawn)")


def test_a_rank_feature_of_an_application_is_its_own_number(shop, enrich, opensearch_engine, capsys):
    """It was called "a number of a model"; on Elasticsearch such an index was refused."""
    index = shop({"popularity": {"type": "rank_feature"}, "topics": {"type": "rank_features"}})
    body = {"name": "timer 100", "popularity": 7.5, "topics": {"tea": 3}, "stock": 100}
    opensearch_engine.request("PUT", f"/{index}/_doc/p3", params={"refresh": True}, body=body)
    assert "numbers of a model" not in str(enrich(index, "--signals", "weights")) + capsys.readouterr().err
    found = tw.connect(opensearch_engine.url).index(index)
    for rule in ("boost@popularity:0.9", "decay@popularity:0.9:1:8"):
        assert found.search("timer", rerank=rule, mode="weights")[0].id == "p3"
    (hit,) = found.search("timer", where="exists(popularity) AND id=p3", fields=["popularity", "topics.tea"])
    assert hit.fields == {"popularity": 7.5, "topics": {"tea": 3}}
    with pytest.raises(UsageError, match="is a rank_feature, so that it cannot be compared by filters"):
        found.search("timer", where="popularity>3")
    options = ["--text-field", "name", "--dense", "none", "--url", opensearch_engine.url]
    assert run(["index", f"opensearch:{index}", f"{index}-copy", *options]) == 0
    assert "fields of vectors are not read: topics (rank_features)." in capsys.readouterr().err
    built = tw.connect(opensearch_engine.url).index(f"{index}-copy")
    assert [hit.id for hit in built.search("timer", where="popularity>7")] == ["p3"]
