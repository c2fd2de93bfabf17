"""The options of a search are declared once: records, keyword arguments, the command line and their checks."""

import pytest

from termweave.errors import UsageError
from termweave.search.filters.grammar import parse
from termweave.search.options import SearchOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k must be at least 1, not 0"),
        ({"candidates": 20_000}, "candidates must be at most 10,000, not 20000"),
        ({"k": 10_000, "start": 1}, "Hit 10,001 cannot be reached"),
        ({"where": {"kind": "class"}}, 'As an expression it is "kind=class"'),
        ({"where": '{"term": '}, "is not JSON"),
        ({"like": "a"}, "like is a list of ids"),
        ({"rerank": "magic"}, "no reranker 'magic'"),
        ({"rerank_budget": -1}, "-1 is not a time"),
        ({"min_score": True}, "min_score must be a text, not true"),
        ({"k": "3"}, "k must be a whole number, not 3"),
        ({"fields": "title"}, "fields is a list of names, not the text 'title'"),
        ({"like": [5]}, "The id of a document is text, not int. Write '5'."),
        ({"where": [{"year": [2020]}]}, 'As an expression it is "year=VALUE"'),
        ({"where": [{"terms": {"id": {"a"}}}]}, "A filter has a value that JSON cannot represent: .*set"),
    ],
)
def test_values_that_cannot_be_used_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        SearchOptions(**given)


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
