"""Arguments from Python: whatever can be gone through is taken, what Python would take apart is refused."""

from __future__ import annotations

import numpy as np
import pytest

from termweave import encoders
from termweave.errors import EngineError, UsageError
from tests.same_ranking import same_ranking

pytestmark = pytest.mark.engine


def test_arguments_that_python_would_take_apart_are_refused(index):
    for wrong, said in (
        ({"like": "json-1"}, "like is a list of ids"),
        ({"like": 5}, "like is a list of ids, not int"),
        ({"fields": [5]}, "The name of a field is text, not int"),
        ({"where": {"kind": "class"}}, "there 'kind' has an object. As an expression it is \"kind=class\""),
        ({"where": [{"year": [2020]}]}, 'As an expression it is "year=VALUE"'),
        ({"where": [5]}, "A filter is a text or a clause of the query DSL, not int"),
        ({"where": None}, "where is a list, not None"),
        ({"where": [{"terms": {"id": {"a"}}}]}, "where has a value that JSON cannot represent: .*set"),
        ({"k": 2.5}, "k must be a whole number, not 2.5"),
        ({"k": "3"}, "k must be a whole number, not 3"),
        ({"rerank": True}, "rerank is the name"),
        ({"mode": ["weights", "dense"]}, "mode must be a text, not weights,dense"),
        ({"rerank": {"k": 3}}, "rerank is the name of a reranker, or one of these, not"),
    ):
        with pytest.raises(UsageError, match=said):
            index.search("json", **wrong)
    with pytest.raises(UsageError, match="id -> text, not list"):
        index.run(["json"])
    with pytest.raises(UsageError, match="The id of a query is text, not int"):
        index.run({1: "json"})
    for workers in (0, "2"):
        with pytest.raises(UsageError, match="workers must be"):
            index.run({"q": "json"}, workers=workers)
    for clause in ({"term": {"id": []}}, {"term": {"passage": "first"}}):  # refused as a whole, and by a shard
        with pytest.raises(EngineError, match="If the filter caused this, correct it: it is a clause"):
            index.search("json", where=[clause])
    assert len(index.search("json", k=np.int64(3))) == 3
    for wrong, kind, said in (("one text", "query", "a list of texts"), ([None], "query", "NoneType"), (["a"], "q", "not 'q'")):
        with pytest.raises(UsageError, match=said):
            encoders.load().encode(wrong, kind=kind)
    assert len(encoders.load().encode(np.array(["one text", "two"]), kind="query")) == 2


def scores(hits):
    return {hit.id: hit.score for hit in hits}


def test_what_can_be_gone_through_once_only_means_what_a_list_means(index):
    first, second = (hit.id for hit in index.search("json", k=2))
    where = [{"bool": {"must_not": [{"term": {"id": first}}]}}]
    liked, fields = [first, second], ["title"]
    wanted = index.search("json", where=where, fields=fields, like=liked, k=5)
    for given in (iter, np.array):
        found = index.search("json", where=given(where), fields=given(fields), like=given(liked), k=5)
        same_ranking(scores(wanted), scores(found))
        assert [hit.fields for hit in found] == [hit.fields for hit in wanted]
        assert found[0].fields.keys() == {"title"}
    assert first not in [hit.id for hit in index.search("json", where=iter(where), k=50)]
    explained = [index.explain("json", first, where=given(where)) for given in (iter, list)]
    same_ranking(*({hit.id: hit.score} for hit in explained))
    assert all(hit.explanation["excluded"] for hit in explained)
    ranked = [index.candidates(["json"], ["lexical", "weights"], where=given(where))[0].lists for given in (list, iter)]
    for name in ("lexical", "weights"):
        same_ranking(*(lists[name].scores for lists in ranked))
    asked = [index.requests("json", mode="weights,lexical", where=given(where), fields=given(fields)) for given in (list, iter)]
    assert asked[0] == asked[1]
    queries = {f"q{number}": "json" for number in range(40)}  # several blocks
    runs = [index.run(queries, where=given(where)).scores for given in (iter, list)]
    for query in queries:
        same_ranking(*(run[query] for run in runs))
        assert first not in runs[0][query]
