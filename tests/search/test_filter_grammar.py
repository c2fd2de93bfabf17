"""The filter grammar: what an expression means for an index whose metadata has types."""

import time

import pytest

from termweave.catalog.layout import DocumentLayout
from termweave.errors import UsageError
from termweave.search.filters.grammar import parse

LAYOUT = DocumentLayout(
    (), ("own",), {"year": "long", "price": "double", "day": "date", "open": "boolean", "tag": "keyword", "kind": "keyword"}
)


def term(name, value):
    return {"term": {name: value}}


def within(name, **bounds):
    return {"range": {name: bounds}}


def any_of(*clauses):
    return {"bool": {"should": list(clauses), "minimum_should_match": 1}}


def all_of(*clauses):
    return {"bool": {"filter": list(clauses)}}


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("kind=function", term("metadata.kind", "function")),
        ("id=d1", term("id", "d1")),
        ('kind="a AND (b"', term("metadata.kind", "a AND (b")),
        ('"a (field)">=b', within("metadata.a (field)", gte="b")),
        ("year=2020", term("typed.year", 2020)),
        ("year=twenty", term("metadata.year", "twenty")),
        ("year>2019.5", within("typed.year", gt=2019.5)),
        ("year=1500000000000000001", term("typed.year", 1500000000000000001)),
        ("year=9999999999999999999", term("metadata.year", "9999999999999999999")),
        ("year>9999999999999999999", within("typed.year", gt=2**63 - 1)),  # more than the field can hold
        ("year<9999999999999999999", within("typed.year", lte=2**63 - 1)),
        ("own<5", within("own", lt="5")),
        ("open=true", term("typed.open", True)),
        ("day>2024", within("typed.day", gte="2025-01-01T00:00:00+00:00")),
        ("day=2024-02-29", within("typed.day", gte="2024-02-29T00:00:00+00:00", lt="2024-03-01T00:00:00+00:00")),
        ("day>9999-12-31", within("typed.day", gte="9999-12-31||+1d")),
        ("exists(kind)", {"exists": {"field": "metadata.kind"}}),
        (
            "year=2020 OR kind IN (a, b) OR year=2021 OR exists(tag)",
            any_of(
                {"terms": {"typed.year": [2020, 2021]}},
                {"terms": {"metadata.kind": ["a", "b"]}},
                {"exists": {"field": "metadata.tag"}},
            ),
        ),
        (
            'year IN (2020, twenty) AND "a kind" IN ("b, c")',
            all_of(any_of(term("typed.year", 2020), term("metadata.year", "twenty")), term("metadata.a kind", "b, c")),
        ),
        ("tag=b?l*e", {"wildcard": {"typed.tag": {"value": "b\\?l*e"}}}),
        ("tag!=b*", {"bool": {"must_not": [{"wildcard": {"typed.tag": {"value": "b*"}}}]}}),
        ('kind="b*"', term("metadata.kind", "b*")),
        ("id=d*", {"wildcard": {"id": {"value": "d*"}}}),
        ("day>=now-7d/d", within("typed.day", gte="now-7d/d")),
        ('kind="a and b=c"', term("metadata.kind", "a and b=c")),
        ("NOT kind=a", {"bool": {"must_not": [term("metadata.kind", "a")]}}),
        ("kind!=a", {"bool": {"must_not": [term("metadata.kind", "a")]}}),
        (
            "kind=a OR kind=b AND year=1",
            any_of(term("metadata.kind", "a"), all_of(term("metadata.kind", "b"), term("typed.year", 1))),
        ),
        ("(kind=a OR kind=b) AND year=1", all_of({"terms": {"metadata.kind": ["a", "b"]}}, term("typed.year", 1))),
    ],
)
def test_an_expression_is_a_clause(text, clause):
    assert parse(text).root.clause(LAYOUT) == clause


def test_a_date_of_the_users_mapping_is_compared_as_any_date():
    layout = DocumentLayout((), ("own",), {"own": "date"})
    assert parse("own<=2024").root.clause(layout) == within("typed.own", lt="2025-01-01T00:00:00+00:00")
    assert parse("own<now-1y").root.clause(layout) == within("typed.own", lt="now-1y")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("=3", "the name of a field is missing"),
        ("(kind=a", "a closing bracket is missing"),
        ("kind=a AND", "'AND' is left over"),
        ("kind AND year=1", "'kind AND year' is not the name of a field"),
        ("(" * 80 + "kind=a", "more than 50 brackets"),
        ("", "a comparison is missing"),
        ("kind IN ()", "after IN, values in brackets"),
        ("kind in (a, b)", "FIELD IN (A, B)"),
        ("not kind=a", "Write NOT, or"),
        ("kind=a or not year=2", "Write OR, or"),
        ("untyped=b*", "is not a field of short texts, and "),
        ("year=20*", "holds whole numbers"),
        ("day=now-7d", "Write day>=now-7d."),
        ("year>new", "holds numbers"),
        ("open>true", "is true or false, which has no order"),
    ],
)
def test_what_is_no_filter_is_refused_with_a_hint(text, said):
    with pytest.raises(UsageError) as refused:
        parse(text).root.clause(LAYOUT)
    assert said in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("text", "blanks"),
    [("a=b{}c", 20_000), ("a{}b=c", 20_000), ("a IN (b{}c)", 20_000), ("a IN (b{}", 20_000), ("a IN ({}", 2_000)],
)
def test_blanks_take_no_time(text, blanks):
    """Such a filter kept a thread of the server busy for a time that grew with the square of the blanks, or their cube."""
    began = time.process_time()
    try:
        parse(text.format(" " * blanks))
    except UsageError as error:
        assert "after IN, values in brackets" in error.message  # noqa: PT017 - some of them are not filters
    assert time.process_time() - began < 0.2
