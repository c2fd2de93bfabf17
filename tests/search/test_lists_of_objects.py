"""Filters on a list of objects: its values are not kept together, which every door says; a nested clause keeps them together."""

import json

import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.indexer import BuildOptions, build
from termweave.search.filters.grammar import objects, parse
from tests.conftest import SHARED
from tests.indexer.enrichment import conftest
from tests.ui.conftest import client_of

pytestmark = pytest.mark.engine
shop, enrich = conftest.shop, conftest.enrich
SHIRTS = SHARED / "cases" / "objects-in-lists" / "shirts.jsonl"
BOTH = "variants.color=red AND variants.size=L"


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ([BOTH], {"variants"}),
        (["variants.color=red", "variants.size=L"], {"variants"}),
        (["variants.color=red AND NOT variants.size=L"], {"variants"}),
        (["NOT (variants.color=red AND variants.size=L)"], {"variants"}),
        (["(year=3 OR a.b.c=1) AND (a.b.d=2 OR x=1)"], {"a", "a.b"}),
        (["a.b.c=1 AND a.x.d=2"], {"a"}),
        (["variants.price>10 AND variants.price<20"], {"variants"}),
        (["variants.color=red OR variants.size=L"], set()),
        (["variants.color IN (red, blue)"], set()),
        (["color=red AND size=L AND variants.size=M"], set()),
    ],
)
def test_the_objects_of_which_two_values_must_pass_together(filters, named):
    assert objects([parse(each) for each in filters]) == named


@pytest.mark.skipif(not SHIRTS.exists(), reason="the cases of ../shared are not there")
@pytest.mark.parametrize("kind", ["built", "enriched"])
def test_that_the_values_are_of_different_objects_is_said(kind, opensearch_engine, name, shop, enrich, tmp_path, capsys):
    if kind == "built":
        build(opensearch_engine, corpora.open_source(str(SHIRTS)), name, BuildOptions(dense="none", analyzer="standard"))
    else:
        variants = {"properties": {"color": {"type": "keyword"}, "size": {"type": "keyword"}}}
        name = shop({"title": {"type": "text"}, "text": {"type": "text"}, "variants": variants})
        for line in SHIRTS.read_text().splitlines():
            shirt = json.loads(line)
            opensearch_engine.request("PUT", f"/{name}/_doc/{shirt.pop('id')}", params={"refresh": True}, body=shirt)
        enrich(name, "--signals", "weights", fields=("--text-field", "text", "--title-field", "title"))
    index, remark = tw.connect(opensearch_engine.url).index(name), "'variants' is a list of objects"
    answer = index.answer("cotton shirt", where=BOTH, mode="weights")
    assert {hit.id for hit in answer.hits} == {"s1", "s2"}
    assert [each[: len(remark)] for each in answer.remarks] == [remark]
    (tmp_path / "queries.tsv").write_text("q1\tcotton shirt\n")
    many = ["--queries", str(tmp_path / "queries.tsv"), "--run", str(tmp_path / "out.trec")]
    assert run(["search", name, *many, "--filter", BOTH, "--url", opensearch_engine.url]) == 0
    assert remark in capsys.readouterr().err
    page = client_of(opensearch_engine, index=name).get("/search", params={"q": "cotton shirt", "filter": BOTH})
    assert remark.replace("'", "&#39;") in page.text
    for other in ("variants.color=green AND variants.size=S", "variants.color=red OR variants.size=L", "variants.color=red"):
        assert not [each for each in index.answer("shirt", where=other, mode="weights").remarks if remark in each], other


def test_the_values_of_nested_objects_stay_together(opensearch_engine, shop, enrich):
    variants = {"type": "nested", "properties": {"color": {"type": "keyword"}, "size": {"type": "keyword"}}}
    name = shop({"variants": variants})
    shirts = ([{"color": "red", "size": "M"}, {"color": "blue", "size": "L"}], [{"color": "red", "size": "L"}])
    for number, variants in enumerate(shirts):
        body = {"name": "timer", "variants": variants}
        opensearch_engine.request("PUT", f"/{name}/_doc/n{number}", params={"refresh": True}, body=body)
    enrich(name, "--signals", "weights")
    index = tw.connect(opensearch_engine.url).index(name)
    parts = BOTH.split(" AND ")
    for where in (BOTH, parts):
        answer = index.answer("timer", where=where)
        assert ([hit.id for hit in answer.hits], answer.remarks[1:]) == (["n1"], ())
    assert {hit.id for hit in index.search("timer", where=parts[0])} == {"n0", "n1"}
    assert any("Documents that pass each one alone" in each for each in index.answer("timer", where=[*parts, "id=n0"]).remarks)
    for where in ("variants.color=red AND variants.size IN (L, XL)", ["variants.color=red AND exists(variants)", parts[1]]):
        assert [hit.id for hit in index.search("timer", where=where)] == ["n1"], where
    assert [hit.id for hit in index.search("timer", where=f"{parts[0]} AND NOT variants.size=M")] == ["n1"]
    both = [{"term": {"variants.color": "red"}}, {"term": {"variants.size": "L"}}]
    clause = {"nested": {"path": "variants", "query": {"bool": {"filter": both}}}}
    assert [hit.id for hit in index.search("timer", where=clause)] == ["n1"]
