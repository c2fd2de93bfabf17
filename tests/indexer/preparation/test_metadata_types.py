"""The types of metadata: inferred from all values, with conflicts said."""

import pytest

from termweave.catalog import typed_fields
from termweave.indexer.preparation.metadata_types import TypeInference


def inferred(*documents, **options):
    inference = TypeInference(**options)
    for metadata in documents:
        inference.count(metadata)
    return inference


def test_types_are_those_of_all_values():
    inference = inferred(
        {"year": 1999, "price": "9", "day": "2024-02-29", "open": True, "zip": "01234", "author": {"age": 3}, "tags": ["a", "b"]},
        {"year": "2001", "price": "9.50", "day": "2024-02-29T10:00Z", "open": "false", "zip": "12345", "author": {"age": None}},
    )
    kinds = {"author.age": "long", "day": "date", "open": "boolean", "price": "double", "tags": "keyword", "year": "long"}
    assert inference.types() == {**kinds, "zip": "keyword"}
    assert inference.types(taken=["year"]).keys() == inference.types().keys() - {"year"}


def decided(values, *, commas=False, declared=""):
    inference = inferred(*({"x": value} for value in values), declared={"x": declared} if declared else None, commas=commas)
    return inference.types()["x"], " ".join(inference.notes())


@pytest.mark.parametrize(
    ("values", "form"),
    [(["10", "9"], "long"), (["10", "9.5"], "double"), (["2024-05-01"], "date"), (["18.11.2026"], "date"), ([10, 9.5], "double")],
)
def test_a_text_that_says_that_there_is_no_value_is_missing_and_is_named(values, form):
    for nothing in ("N/A", "n/a", "TBD", "-", "\u2013", "?", "unknown", "NULL", "\\N", "#N/A", "#WERT!", "keine Angabe", " NaN "):
        found, said = decided([*values, nothing])
        assert (found, f"{nothing!r} (1)." in said) == (form, True)
    assert decided([*values, " ", ""]) == (form, "")  # a blank cell is no odd one


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["12.5"] * 10 + ["on request"], "double"),
        (["12.5"] * 9 + ["on request", "sold out"], "keyword"),
        ([12.5, "x" * 300, *[3] * 20], "double"),  # however long the odd one is
        (["text"] * 20 + ["42"], "keyword"),
        (["2025-01-01"] * 20 + ["2024-02-30", "03/04/2025"], "date"),
        ([True, "unknown"], "keyword"),  # three values to count, and no order
    ],
)
def test_a_few_odd_values_among_many_decide_nothing(values, form):
    assert decided(values)[0] == form


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1001", "1002", "A-77"], "'A-77' (perhaps number)"),
        (["2025-01-01", "2025-01-02", 7], "(perhaps date)"),
        (["1,234", "5"], "(perhaps decimal-comma or decimal-point)"),
        (["12,50", "7,25"], "(perhaps decimal-comma)"),  # or lists of two numbers
        (["03/04/2025", "05/06/2025"], "(perhaps day-month-year or month-day-year)"),
    ],
)
def test_what_is_doubtful_is_text_and_is_said_with_the_option(values, said):
    found, notes = decided(values)
    assert (found, said in notes, "`--types FIELD=TYPE` decides otherwise." in notes) == ("keyword", True, True)


@pytest.mark.parametrize(
    ("values", "form", "first"),
    [
        (["12,50", "1.299,00", "7,00"], "decimal-comma", 12.5),
        (["1\u202f299,00", "2"], "decimal-comma", 1299),
        (["1,299.00", "5"], "decimal-point", 1299),
        (["1,299", "5.25"], "decimal-point", 1299),
        (["03/04/2025", "24/12/2025"], "day-month-year", "2025-04-03T00:00:00+00:00"),
        (["03/04/2025", "12/24/2025 10:30"], "month-day-year", "2025-03-04T00:00:00+00:00"),
        (["18.11.2026", "1.2.2026"], "date", "2026-11-18T00:00:00+00:00"),
        (["Wed, 18 Nov 2026 11:06:40 GMT", "2026/11/18"], "date", "2026-11-18T11:06:40+00:00"),
    ],
)
def test_a_notation_is_read_where_the_values_prove_it(values, form, first):
    assert decided(values)[0] == form
    assert typed_fields.convert(form, values[0]) == first


def test_commas_of_a_table_with_semicolons_are_decimal_commas():
    assert decided(["12,50", "7,00", "1.299,00"], commas=True)[0] == decided(["12,50", "7"], commas=True)[0] == "decimal-comma"
    assert decided(["12,50", "12.5"], commas=True)[0] == decided(["1,234", "5"], commas=True)[0] == "keyword"


def test_a_declared_type_holds_whatever_the_values_are():
    found, said = decided(["1795000000", "soon", 1795000000], declared="epoch-seconds")
    assert found == "epoch-seconds"
    assert "'x' has dates, and 'soon' (1)" in said
    assert decided([5, 7], declared="keyword") == ("keyword", "")


def test_what_cannot_be_a_field_is_left_out():
    assert inferred({"a": 1}, {"a": {"b": 2}}).types() == {"a.b": "long"}  # a value here, an object there
    assert inferred({"": 1, " . ": 2, "long": "x" * 300, "deep": {"er": {"z": 1}}}).types() == {"deep.er.z": "long"}


def test_an_update_says_what_does_not_fit():
    types = {"year": "long", "price": "double", "cost": "decimal-comma"}
    documents = {"year": "n/a", "price": 3, "cost": "12,50"}, {"year": 5, "new": 1, "cost": "12.5"}
    inference = inferred(*documents, declared=types)
    misfits, new = inference.against({**types, "cost": "double"})
    assert "'cost' (1, not numbers), 'year' (1, not whole numbers)" in misfits
    assert "no type for: 'new'" in new
    assert inference.against({}) == []  # an index without types
