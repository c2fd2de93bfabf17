"""Documents that a program holds, in every form that is accepted, become the same source."""

import datetime as dt

import numpy as np
import pytest

from termweave.corpora import open_documents
from termweave.errors import InputError, UsageError
from termweave.records import Document

ROWS = [
    {"id": "a", "title": "One", "text": "first text", "year": 1999, "price": 1.5},
    {"id": "b", "title": "", "text": "second text", "year": 2001, "price": None},
]
EXPECTED = [
    ("a", "One", "first text", {"year": 1999, "price": 1.5}),
    ("b", "", "second text", {"year": 2001, "price": None}),
]


def read(source):
    return [(document.id, document.title, document.text, dict(document.metadata)) for document in source.documents()]


def forms():
    yield "list", lambda: ROWS
    yield "generator", lambda: (row for row in ROWS)
    yield (
        "records",
        lambda: [Document(row["id"], row["text"], row["title"], {k: row[k] for k in ("year", "price")}) for row in ROWS],
    )
    yield "pandas", lambda: pytest.importorskip("pandas").DataFrame(ROWS)
    yield "polars", lambda: pytest.importorskip("polars").DataFrame(ROWS)
    yield "arrow", lambda: pytest.importorskip("pyarrow").Table.from_pylist(ROWS)
    yield "datasets", lambda: pytest.importorskip("datasets").Dataset.from_list(ROWS)


@pytest.mark.parametrize(("form", "make"), list(forms()), ids=[form for form, _ in forms()])
def test_every_form_gives_the_same_documents_twice(form, make):
    source = open_documents(make())
    assert read(source) == EXPECTED
    assert read(source) == EXPECTED  # a build reads its source twice
    assert source.fingerprint == open_documents(make()).fingerprint


def test_the_temporary_file_goes_with_the_source():
    source = open_documents(ROWS)
    path = source.path
    assert path.is_file()
    del source
    assert not path.exists()


def test_values_that_json_does_not_have_become_what_a_table_s_values_become():
    pandas = pytest.importorskip("pandas")
    row = {
        "id": np.int64(7),
        "text": "x",
        "day": dt.date(2020, 1, 2),
        "missing": pandas.NA,
        "never": pandas.NaT,
        "nan": float("nan"),
        "array": np.arange(2),
        "nested": {"deep": (np.float32(0.5),)},
    }
    ((id_, _, _, metadata),) = read(open_documents([row]))
    assert id_ == "7"
    empty = dict.fromkeys(("missing", "never", "nan"))
    assert metadata == {"day": "2020-01-02", **empty, "array": [0, 1], "nested": {"deep": [0.5]}}


def test_other_names_of_fields():
    source = open_documents(
        [{"sku": "p1", "name": "Lamp", "about": "bright"}], id_field="sku", title_field="name", text_fields=["about"]
    )
    assert read(source) == [("p1", "Lamp", "bright", {})]


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ("corpus.jsonl", "open_source reads files"),
        ({"id": "a", "text": "x"}, "Put it into a list"),
        (7, "not int"),
        (["a text"], "Item 1 of documents is str"),
    ],
)
def test_what_is_no_collection_of_documents_is_refused(documents, sentence):
    with pytest.raises(UsageError) as refused:
        open_documents(documents)
    assert sentence in f"{refused.value.message} {refused.value.hint}"


def test_a_bad_document_is_named_by_its_number():
    source = open_documents([{"id": "a", "text": "x"}, {"id": "b"}])
    with pytest.raises(InputError, match="documents, item 2: neither a title nor a text"):
        read(source)
    assert [id_ for id_, *_ in read(open_documents([{"id": "a", "text": "x"}, {"id": "b"}], skip_bad=True))] == ["a"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"tags": [{"deep": object()}]}, "Item 2 of notes cannot be written as JSON: a value of the type object has no text"),
        ({"text": b"\xff"}, "Item 2 of notes"),
    ],
)
def test_a_value_without_a_text_is_refused_by_number(values, sentence):
    with pytest.raises(InputError, match=sentence):
        open_documents([{"id": "a", "text": "x"}, {"id": "b", "text": "x", **values}], name="notes")
