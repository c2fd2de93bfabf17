"""What databases and search engines export: MongoDB's extended JSON, elasticdump's hits, requests of the `_bulk` API."""

import gzip
import io
import json

import pytest

from termweave import corpora
from termweave.errors import InputError


def read(path, **options):
    source = corpora.open_source(path, **options)
    return {each.id: (each.title, each.text, dict(each.metadata)) for each in source.documents()}, source


def written(tmp_path, *lines):
    path = tmp_path / "export.json"
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines))
    return path


@pytest.fixture
def exports(shared):
    if not (folder := shared / "cases" / "exports").is_dir():
        pytest.skip("the cases stand beside the project and are not here")
    return folder


@pytest.mark.parametrize("id_field", [None, "_id.$oid", "_id"])
def test_mongoexport(exports, id_field):
    documents, source = read(exports / "articles.json", id_field=id_field, text_fields=["text"])
    assert {key: metadata for key, (_, _, metadata) in documents.items()} == {
        "64c91330c2a74205feef694b": {"views": 120, "published": "2024-05-01T10:00:00Z"},
        "64c91330c2a74205feef694c": {"views": 9, "published": "2024-05-01T10:00:00+00:00"},
    }
    assert "extended JSON of MongoDB; on its first line, id = '_id'" in source.remarks[0]


def test_values_of_extended_json(tmp_path):
    values = {
        "uuid": ({"$uuid": "3b241101-e2bb-4255-8caf-4136c566a962"}, "3b241101-e2bb-4255-8caf-4136c566a962"),
        "price": ({"$numberDecimal": "9.90"}, "9.90"),
        "weight": ({"$numberDouble": "1.5"}, 1.5),
        "nan": ({"$numberDouble": "NaN"}, None),
        "seen": ([{"$date": 1714557600000}, {"$date": {"$numberLong": "-1000"}}], ["2024-05-01T10:00:00+00:00", "1969-12-31T23:59:59+00:00"]),
        "inner": ({"author": {"$oid": "64c9"}, "$other": 1}, {"author": "64c9", "$other": 1}),
        "money": ({"$": 5}, {"$": 5}),
    }  # fmt: skip
    extended = {key: value for key, (value, _) in values.items()}
    documents, _ = read(written(tmp_path, {"_id": {"$numberLong": "7"}, "text": "tea", **extended}))
    assert documents["7"] == ("", "tea", {key: plain for key, (_, plain) in values.items()})
    deep = '{"$date": ' * 600 + "1" + "}" * 600
    with pytest.raises(InputError, match="nested"):
        read(written(tmp_path, f'{{"_id": "1", "text": "tea", "x": {deep}}}'))


@pytest.mark.parametrize(
    "options", [{}, {"title_field": "_source.title", "text_fields": ["_source.text"]}, {"title_field": "title"}]
)
def test_elasticdump(exports, options):
    documents, source = read(exports / "dump.json", **options)
    assert documents == {
        "a1": ("Green tea", "Green tea is steeped at 75 degrees.", {"views": 120}),
        "a2": ("Coffee", "Coffee is ground just before brewing.", {"views": 9}),
    }
    assert "hits of an index; on its first line, id = '_id'" in source.remarks[0]


def test_bulk_packed_and_from_standard_input(exports, monkeypatch):
    content = gzip.compress((exports / "bulk.ndjson").read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    documents, source = read("-")
    assert documents == {
        "12": ("Tea", "Tea is a drink made of leaves.", {"namespace": 0}),
        "13": ("Coffee", "Coffee is a drink made of beans.", {"namespace": 0}),
    }
    assert "requests of the _bulk API; on its first line, id = '_id'" in source.remarks[0]


def test_a_bulk_file_gives_the_documents_that_the_index_would_have(tmp_path):
    lines = [
        {"index": {"_id": "1", "_index": "x"}}, {"title": "a", "text": "one", "tags": {"x": 1}},
        {"create": {"_id": 2}}, {"text": "two"},
        {"update": {"_id": "1"}}, {"doc": {"text": "ONE", "tags": {"y": 2}}},
        {"delete": {"_id": "2"}},
        {"delete": {"_id": "never"}},
        {"update": {"_id": "3"}}, {"doc": {"text": "three"}, "doc_as_upsert": True},
        {"update": {"_id": "4"}}, {"doc": {"text": "no"}, "upsert": {"text": "four"}},
        {"index": {"_id": "5"}}, {"text": "five"},
        {"delete": {"_id": "6"}}, {"index": {"_id": "6"}}, {"text": "six"},
        {"index": {"_id": "7"}}, {"text": "old"}, {"index": {"_id": "7"}}, {"text": "seven"}, {"create": {"_id": "7"}}, {"text": "refused"},
    ]  # fmt: skip
    documents, _ = read(written(tmp_path, *lines))
    texts = {"1": "ONE", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven"}
    assert {key: text for key, (_, text, _) in documents.items()} == texts
    assert documents["1"] == ("a", "ONE", {"tags": {"x": 1, "y": 2}})


def test_a_bulk_file_without_ids_is_numbered_and_its_documents_may_have_their_own(tmp_path):
    assert list(read(written(tmp_path, {"index": {}}, {"text": "one"}, {"index": {}}, {"text": "two"}))[0]) == ["2", "4"]
    assert list(read(written(tmp_path, {"index": {}}, {"id": "a", "text": "one"}))[0]) == ["a"]


def test_nested_fields_can_be_named(tmp_path):
    entry = {"meta": {"sku": 7, "brand": "x"}, "head": {"line": "Tea"}, "body": {"main": "Green."}}
    documents, source = read(written(tmp_path, entry), id_field="meta.sku", title_field="head.line", text_fields=["body.main"])
    assert documents == {"7": ("Tea", "Green.", {"meta": {"brand": "x"}})}
    assert "id = 'meta.sku'; title = 'head.line'; text = 'body.main'" in source.remarks[0]


def test_a_document_with_a_field_of_an_export_stays_a_document(tmp_path):
    documents, source = read(written(tmp_path, {"id": "1", "text": "x", "index": {"_id": "2"}, "_source": "feed"}))
    assert documents == {"1": ("", "x", {"index": {"_id": "2"}, "_source": "feed"})}
    assert source.kind == "jsonl/1"
