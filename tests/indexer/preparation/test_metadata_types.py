"""The types of metadata: inferred from all values, with conflicts said."""

import doctest

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
    assert inference.types() == {
        "author.age": "long",
        "day": "date",
        "open": "boolean",
        "price": "double",
        "tags": "keyword",
        "year": "long",
        "zip": "keyword",
    }
    assert inference.types(taken=["year"]).keys() == inference.types().keys() - {"year"}


def test_a_conflict_is_text_and_is_said():
    inference = inferred({"pages": 12}, {"pages": 7}, {"pages": "unknown"})
    assert inference.types() == {"pages": "keyword"}
    (note,) = inference.notes()
    assert note == (
        "1 metadata field compared as text, because the values are of several types: "
        "'pages' has whole numbers (2) and texts (1), for example 'unknown'."
    )
    assert inferred(*[{"word": "text"}] * 20, {"word": "42"}).notes() == []  # a text that is a number now and then


def test_what_cannot_be_a_field_is_left_out():
    assert inferred({"a": 1}, {"a": {"b": 2}}).types() == {"a.b": "long"}  # a value here, an object there
    assert inferred({"": 1, " . ": 2, "long": "x" * 300, "deep": {"er": {"z": 1}}}).types() == {"deep.er.z": "long"}


def test_an_update_says_what_does_not_fit():
    inference = inferred({"year": "n/a", "price": 3}, {"year": 5, "new": 1})
    misfits, new = inference.against({"year": "long", "price": "double"})
    assert "'year' (1, not whole numbers)" in misfits
    assert "no type for: 'new'" in new
    assert inference.against({}) == []  # an index without types
