"""The filter grammar: what an expression means for an index whose metadata has types."""

import pytest

from termweave.errors import UsageError
from termweave.search.retrieval.filter_grammar import parse
from termweave.signals import DocumentLayout

LAYOUT = DocumentLayout((), ("own",), {"year": "long", "price": "double", "day": "date", "open": "boolean", "kind": "keyword"})


def term(name, value):
    return {"term": {name: value}}


def within(name, **bounds):
    return {"range": {name: bounds}}


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("kind=function", term("metadata.kind", "function")),
        ("metadata.kind = two words ", term("metadata.kind", "two words")),
        ("id=d1", term("id", "d1")),
        ("kind=f(x)", term("metadata.kind", "f(x)")),
        ('kind="a AND (b"', term("metadata.kind", "a AND (b")),
        ('"a (field)">=b', within("metadata.a (field)", gte="b")),
        ("year=2020", term("typed.year", 2020)),
        ("year=twenty", term("metadata.year", "twenty")),
        ("year>2019.5", within("typed.year", gt=2019.5)),
        ("price<=10", within("typed.price", lte=10)),
        ("own<5", within("own", lt="5")),
        ("open=true", term("typed.open", True)),
        ("day>2024", within("typed.day", gte="2025-01-01T00:00:00+00:00")),
        ("day<=2024-02", within("typed.day", lt="2024-03-01T00:00:00+00:00")),
        ("day=2024-02-29", within("typed.day", gte="2024-02-29T00:00:00+00:00", lt="2024-03-01T00:00:00+00:00")),
        ("exists(kind)", {"exists": {"field": "metadata.kind"}}),
        ("NOT kind=a", {"bool": {"must_not": [term("metadata.kind", "a")]}}),
        ("kind!=a", {"bool": {"must_not": [term("metadata.kind", "a")]}}),
        (
            "kind=a OR kind=b AND year=1",
            {
                "bool": {
                    "should": [
                        term("metadata.kind", "a"),
                        {"bool": {"filter": [term("metadata.kind", "b"), term("typed.year", 1)]}},
                    ],
                    "minimum_should_match": 1,
                }
            },
        ),
        (
            "(kind=a OR kind=b) AND year=1",
            {
                "bool": {
                    "filter": [
                        {"bool": {"should": [term("metadata.kind", "a"), term("metadata.kind", "b")], "minimum_should_match": 1}},
                        term("typed.year", 1),
                    ]
                }
            },
        ),
    ],
)
def test_an_expression_is_a_clause(text, clause):
    assert parse(text).clause(LAYOUT) == clause


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind", "'kind' is not FIELD=VALUE"),
        ("=3", "the name of a field is missing"),
        ("(kind=a", "a closing bracket is missing"),
        ("kind=a AND", "'AND' is left over"),
        ("kind=a)", "'\\)' is left over"),
        ("kind AND year=1", "'kind AND year' is not the name of a field"),
        ("(" * 80 + "kind=a", "more than 50 brackets"),
        ("", "a part is missing"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_grammar(text, said):
    with pytest.raises(UsageError, match=said) as refused:
        parse(text)
    assert "AND, OR, NOT, exists(FIELD)" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [("year>new", "holds numbers"), ("day<soon", "holds dates"), ("open>true", "is true or false, which has no order")],
)
def test_a_value_of_another_type_cannot_be_compared(text, said):
    with pytest.raises(UsageError, match=said):
        parse(text).clause(LAYOUT)
