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
RECORDS = [Document(row["id"], row["text"], row["title"], {name: row[name] for name in ("year", "price")}) for row in ROWS]


def read(source):
    return [(document.id, document.title, document.text, dict(document.metadata)) for document in source.documents()]


FORMS = {
    "list": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "records": lambda: RECORDS,
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(ROWS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(ROWS),
    "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pylist(ROWS),
    "datasets": lambda: pytest.importorskip("datasets").Dataset.from_list(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_documents_twice_from_a_temporary_file(form):
    source = open_documents(FORMS[form]())
    for _ in range(2):  # a build reads its source twice
        assert read(source) == [(each.id, each.title, each.text, each.metadata) for each in RECORDS]
    assert source.fingerprint == open_documents(FORMS[form]()).fingerprint
    path = source.path
    assert path.is_file()
    del source
    assert not path.exists()


def test_values_that_json_does_not_have_become_what_a_table_s_values_become():
    pandas = pytest.importorskip("pandas")
    empty = {"missing": pandas.NA, "never": pandas.NaT, "nan": float("nan")}
    row = {"day": dt.date(2020, 1, 2), **empty, "array": np.arange(2), "nested": {"deep": (np.float32(0.5),)}}
    metadata = {"day": "2020-01-02", **dict.fromkeys(empty), "array": [0, 1], "nested": {"deep": [0.5]}}
    assert read(open_documents([{"id": np.int64(7), "text": "x", **row}])) == [("7", "", "x", metadata)]


def test_other_names_of_fields():
    names = {"id_field": "sku", "title_field": "name", "text_fields": ["about"]}
    assert read(open_documents([{"sku": "p1", "name": "Lamp", "about": "bright"}], **names)) == [("p1", "Lamp", "bright", {})]


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ("corpus.jsonl", "open_source reads files"),
        ({"id": "a", "text": "x"}, "Put it into a list"),
        (7, "not int"),
        (["a text"], "Item 1 of documents is of the type str"),
    ],
)
def test_what_is_no_collection_of_documents_is_refused(documents, sentence):
    with pytest.raises(UsageError) as refused:
        open_documents(documents)
    assert sentence in f"{refused.value.message} {refused.value.hint}"


GOOD = {"id": "a", "text": "x"}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"id": "b"}, "notes, item 2: neither a title nor a text"),
        ({"id": "b", "tags": [{"deep": object()}]}, "Item 2 of notes cannot be written as JSON: a value of the type object has no text"),
        ({"id": "b", "text": b"\xff"}, "Item 2 of notes"),
    ],
)  # fmt: skip
def test_a_bad_document_is_named_by_its_number(bad, sentence):
    with pytest.raises(InputError, match=sentence):
        read(open_documents([GOOD, bad], name="notes"))
    assert [id_ for id_, *_ in read(open_documents([GOOD, {"id": "b"}], skip_bad=True))] == ["a"]
