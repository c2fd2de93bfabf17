"""The types of metadata: inferred from all values, with conflicts said."""

import doctest

import pytest

from termweave.catalog import typed_fields
from termweave.indexer.preparation.metadata_types import TypeInference


def inferred(*documents):
    inference = TypeInference()
    for metadata in documents:
        inference.count(metadata)
    return inference


def test_the_examples_of_the_module():
    assert doctest.testmod(typed_fields).failed == 0


def test_types_are_those_of_all_values():
    inference = inferred(
        {"year": 1999, "price": "9", "day": "2024-02-29", "open": True, "zip": "01234", "author": {"age": 3}, "tags": ["a", "b"]},
        {
            "year": "2001",
            "price": "9.50",
            "day": "2024-02-29T10:00Z",
            "open": "false",
            "zip": "12345",
            "author": {"age": None},
            "x": "",
        },
    )
    kinds = {"author.age": "long", "day": "date", "open": "boolean", "price": "double", "tags": "keyword", "year": "long"}
    assert inference.types() == {**kinds, "zip": "keyword"}
    assert inference.types(taken=["year"]).keys() == inference.types().keys() - {"year"}


def decided(values, *, commas=False, declared=""):
    inference = TypeInference({"x": declared} if declared else None, commas=commas)
    for value in values:
        inference.count({"x": value})
    return inference.types()["x"], " ".join(inference.notes())


@pytest.mark.parametrize(
    ("values", "form"),
    [(["10", "9"], "long"), (["10", "9.5"], "double"), (["2024-05-01"], "date"), (["18.11.2026"], "date"), ([10, 9.5], "double")],
)
def test_a_text_that_says_that_there_is_no_value_is_missing_and_is_named(values, form):
    for nothing in ("N/A", "n/a", "TBD", "-", "\u2013", "?", "unknown", "NULL", "\\N", "#N/A", "#WERT!", "keine Angabe", " NaN "):
        found, said = decided([*values, nothing])
        assert found == form
        assert (
            f"count as missing, which comparisons, --facet and --sort do not see: 'x' has {typed_fields.TYPES[form]}, and {nothing!r} (1)."
            in said
        )
        assert "`--types FIELD=TYPE` decides otherwise." in said
    assert decided([*values, " ", ""]) == (form, "")  # a blank cell is no odd one


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["12.5"] * 10 + ["on request"], "double"),
        (["12.5"] * 9 + ["on request", "sold out"], "keyword"),
        ([12.5, "x" * 300, *[3] * 20], "double"),  # however long the odd one is
        (["01234", "12345678"], "keyword"),
        ([True, "unknown"], "keyword"),  # three values to count, and no order
    ],
)
def test_a_few_odd_values_among_many_decide_nothing(values, form):
    assert decided(values)[0] == form


def test_a_text_that_is_a_number_now_and_then_is_simply_text():
    assert decided(["text"] * 20 + ["42"]) == decided(["N/A"] * 5) == ("keyword", "")


def test_few_texts_among_dates_are_missing():
    found, said = decided(["2025-01-01"] * 20 + ["2024-02-30", "03/04/2025"])
    assert found == "date"
    assert "'2024-02-30' (1), '03/04/2025' (1)" in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1001", "1002", "A-77"], "whole numbers (2) and texts (1), for example 'A-77' (perhaps number)"),
        (["1.10", "1.9", "2.0-beta"], "for example '2.0-beta' (perhaps number)"),
        (["2025-01-01", "2025-01-02", 7], "dates (2) and whole numbers (1) (perhaps date)"),
        (["1,234", "5"], "(perhaps decimal-comma or decimal-point)"),
        (["12,50", "7,25"], "texts (2), for example '12,50' (perhaps decimal-comma)"),  # or lists of two numbers
        (["03/04/2025", "05/06/2025"], "(perhaps day-month-year or month-day-year)"),
    ],
)
def test_what_is_doubtful_is_text_and_is_said_with_the_option(values, said):
    found, notes = decided(values)
    assert found == "keyword"
    assert f"or can be read in several ways: 'x' has {said}" in notes or said in notes
    assert "`--types FIELD=TYPE` decides otherwise." in notes


@pytest.mark.parametrize(
    ("values", "form", "first"),
    [
        (["12,50", "1.299,00", "7,00"], "decimal-comma", 12.5),
        (["1.299,00", "12,50"], "decimal-comma", 1299),
        (["1\u202f299,00", "2"], "decimal-comma", 1299),
        (["1,299.00", "5"], "decimal-point", 1299),
        (["1'299.50", "5"], "decimal-point", 1299.5),
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
    assert ("with a notation: 'x' as" in decided(values)[1]) == (form in typed_fields.NOTATIONS)


def test_commas_of_a_table_with_semicolons_are_decimal_commas():
    assert decided(["12,50", "7,00", "1.299,00"], commas=True)[0] == decided(["12,50", "7"], commas=True)[0] == "decimal-comma"
    assert decided(["12,50", "12.5"], commas=True)[0] == decided(["1,234", "5"], commas=True)[0] == "keyword"


def test_what_could_be_thousands_in_a_table_with_semicolons_is_said():
    assert decided(["1.299", "2.450"], commas=True) == (
        "double",
        "1 metadata field of numbers or dates with a notation: 'x' as decimal-point. `--types FIELD=TYPE` decides otherwise.",
    )
    assert decided(["1.299", "2.5"], commas=True) == decided(["1.299", "2.450"]) == ("double", "")


def test_a_declared_type_holds_whatever_the_values_are():
    found, said = decided(["1795000000", "soon", 1795000000], declared="epoch-seconds")
    assert found == "epoch-seconds"
    assert "'x' has dates, and 'soon' (1)" in said
    assert decided([5, 7], declared="keyword") == ("keyword", "")
    inference = TypeInference({"prise": "double"})
    inference.count({"price": 5})
    assert "--types is without effect on prise" in inference.notes()[0]


def test_whole_numbers_that_may_be_times_are_said():
    assert "add `--types x=epoch-seconds`" in decided([1795000000, "1793272000"])[1]
    assert "add `--types x=epoch-milliseconds`" in decided([1795000000000])[1]
    assert decided([1795000000, 12])[1] == decided([4006381333931])[1] == ""  # a count, and the number of an article


def test_what_cannot_be_a_field_is_left_out():
    assert inferred({"a": 1}, {"a": {"b": 2}}).types() == {"a.b": "long"}  # a value here, an object there
    assert inferred({"": 1, " . ": 2, "long": "x" * 300, "deep": {"er": {"z": 1}}}).types() == {"deep.er.z": "long"}


def test_an_update_says_what_does_not_fit():
    types = {"year": "long", "price": "double", "cost": "decimal-comma"}
    inference = TypeInference(types)
    for metadata in ({"year": "n/a", "price": 3, "cost": "12,50"}, {"year": 5, "new": 1, "cost": "12.5"}):
        inference.count(metadata)
    misfits, new = inference.against({**types, "cost": "double"})
    assert "'cost' (1, not numbers), 'year' (1, not whole numbers)" in misfits
    assert "no type for: 'new'" in new
    assert inference.against({}) == []  # an index without types
