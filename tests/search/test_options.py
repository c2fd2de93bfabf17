"""The options of a search are declared once: records, keyword arguments, the command line and their checks."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from termweave.errors import UsageError
from termweave.search import Index
from termweave.search.filters.grammar import parse
from termweave.search.options import ExplainOptions, RunOptions, SearchOptions


@pytest.mark.parametrize(
    ("method", "record"),
    [(Index.search, SearchOptions), (Index.asearch, SearchOptions), (Index.explain, ExplainOptions), (Index.run, RunOptions)],
)
def test_a_method_shows_the_fields_of_its_record(method, record):
    parameters = inspect.signature(method).parameters
    for each in fields(record):
        assert parameters[each.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n    {each.name}: " in method.__doc__
    assert "options" not in parameters


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"k": 1.5}, "k must be a whole number, not 1.5"),
        ({"candidates": 20_000}, "candidates must be at most 10,000, not 20000"),
        ({"k": 10_000, "start": 1}, "Hit 10,001 cannot be reached"),
        ({"where": {"kind": "class"}}, 'As an expression it is "kind=class"'),
        ({"where": '{"term": '}, "is not JSON"),
        ({"where": "{}"}, "is not one clause of the query DSL"),
        ({"like": "a"}, "like is a list of ids"),
        ({"mode": 3}, "mode must be a text, not 3"),
        ({"rerank": "magic"}, "no reranker 'magic'"),
        ({"rerank_budget": -1}, "-1 is not a time"),
        ({"rerank_budget": "80"}, "'80' is not a time"),
        ({"sort": ":desc"}, "does not name a field"),
        ({"min_score": {"dense": 0.9}}, "min_score must be a text, not"),
        ({"min_score": True}, "min_score must be a text, not true"),
        ({"k": "3"}, "k must be a whole number, not 3"),
        ({"start": -1}, "start must be at least 0"),
        ({"fields": "title"}, "fields is a list of names, not the text 'title'"),
        ({"fields": [5]}, "The name of a field is text, not int"),
        ({"fields": None}, "fields is a list, not None"),
        ({"like": 5}, "like is a list of ids, not int"),
        ({"like": [5]}, "The id of a document is text, not int. Write '5'."),
        ({"where": [{"year": [2020]}]}, 'As an expression it is "year=VALUE"'),
        ({"where": [5]}, "A filter is a text or a clause of the query DSL, not int"),
        ({"where": None}, "where is a list, not None"),
        ({"where": [{"terms": {"id": {"a"}}}]}, "where has a value that JSON cannot represent: .*set"),
        ({"rerank": True}, "rerank is the name"),
        ({"rerank": {"k": 3}}, "rerank is the name of a reranker, or one of these, not"),
        ({"mode": ["weights", "dense"]}, "mode must be a text, not weights,dense"),
    ],
)
def test_values_that_cannot_be_used_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        SearchOptions(**given)


@pytest.mark.parametrize("workers", [0, 65, "2", 1.5])
def test_workers_out_of_range_are_refused(workers):
    with pytest.raises(UsageError, match="workers must be"):
        RunOptions(workers=workers)


def test_what_can_be_read_only_once_is_kept_as_a_list():
    assert SearchOptions(where={"term": {"id": "a"}}).where == [{"term": {"id": "a"}}]  # one filter needs no list
    kept = SearchOptions(where=iter([{"term": {"id": "a"}}]), like=iter(["a"]), fields=iter(["title"]))
    assert (kept.where, kept.like, kept.fields) == ([{"term": {"id": "a"}}], ["a"], ["title"])
    several = SearchOptions(fields=["title, kind", "year"], facets=["kind,year"])  # as the command line and the API give them
    assert (several.fields, several.facets) == (["title", "kind", "year"], ["kind", "year"])
    assert SearchOptions(**vars(kept)) == kept


def test_texts_are_read_as_on_the_command_line():
    options = SearchOptions(where=["year>=2020", '{"term": {"id": "a"}}'], rerank_budget="0.5s")
    assert options.where == [parse("year>=2020"), {"term": {"id": "a"}}]
    assert (options.rerank_budget, SearchOptions(rerank_budget="none").rerank_budget) == (500.0, float("inf"))
