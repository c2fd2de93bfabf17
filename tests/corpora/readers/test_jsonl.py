"""JSON lines: what is read, named and left out; and exports: MongoDB's extended JSON, elasticdump's hits, requests of the `_bulk` API."""

import gzip
import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.corpora import open_source
from termweave.errors import InputError
from termweave.support.normal_form import normal_value
from tests.corpora.files import make, read


def write(folder, content):
    return make(folder, {"corpus.jsonl": content}) / "corpus.jsonl"


NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]))
OTHERS = {"year": st.integers(-(2**63), 2**64 - 1), "tags": st.lists(NO_SURROGATES)}
OTHERS["nested"] = st.dictionaries(NO_SURROGATES, st.none())
REQUIRED = {"_id": NO_SURROGATES.filter(bool), "text": NO_SURROGATES, "title": NO_SURROGATES}
RECORDS = st.lists(st.fixed_dictionaries(REQUIRED, optional=OTHERS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(records=RECORDS, packed=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n \n"]), ascii_only=st.booleans())
def test_what_is_written_is_read(tmp_path, records, packed, end, ascii_only):
    content = end.join(json.dumps(each, ensure_ascii=ascii_only) for each in records).encode()
    found = read(write(tmp_path, gzip.compress(content, 1) if packed else content))
    expected = [{**normal_value(each), "_id": each["_id"]} for each in records]
    assert [{"_id": id_, "text": text, "title": title, **metadata} for id_, title, text, metadata in found] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": 7, "contents": "x"}', ("7", "", "x", {})),
        ('{"doc_id": "d", "content": "x", "url": "u"}', ("d", "", "x", {"url": "u"})),
        ('{"_id": "a", "id": 3, "title": "only a title"}', ("a", "only a title", "", {"id": 3})),
        ('{"_id": "a", "text": "", "metadata": {"x": 1, "y": 2}, "y": 3}', ("a", "", "", {"x": 1, "y": 3})),
        ('{"_id": "a", "text": "t", "metadata": "flat"}', ("a", "", "t", {"metadata": "flat"})),
        ('{"text": "no id"}', ("1", "", "no id", {})),
        ('{"_id": "a", "text": "nul \\u0000 inside"}', ("a", "", "nul \0 inside", {})),
    ],
)
def test_the_keys_a_document_may_have(tmp_path, line, expected):
    assert read(write(tmp_path, line)) == [expected]


def test_lines_are_counted_as_an_editor_counts_them_and_byte_order_marks_go_wherever_they_stand(tmp_path):
    assert read(write(tmp_path, b" \n\n")) == []
    mark = b"\xef\xbb\xbf"
    source = open_source(write(tmp_path, mark + b'\n\n{"text": "x"}\r\n   \n' + mark + b'{"text": "y"}'))
    assert [(each.id, each.line) for each in source.documents()] == [("3", 3), ("5", 5)]


@pytest.mark.parametrize(
    ("named", "field", "names"),
    [({"id_field": "nope"}, "id", "'id', 'headline', 'body'"), ({"text_fields": ["nope"]}, "text", "'headline', 'body'")],
)
def test_a_field_that_no_entry_has_is_answered_with_those_that_are_there(tmp_path, named, field, names):
    path = write(tmp_path, b'{"id": "a", "headline": "x", "body": "y"}\n')
    with pytest.raises(InputError, match=f"line 1: no 'nope', which {field}_fields? names?, among {names}") as refused:
        read(path, **named)
    assert refused.value.hint.startswith(f"Correct --{field}-field")
    assert open_source(path, **named).remarks == []  # nothing is read as 'nope'


def test_skipped_lines_are_all_counted_and_the_first_kept(tmp_path):
    source = open_source(write(tmp_path, '{"_id": "a", "text": "one"}\n' + "{broken\n" * 5000), skip_bad=True)
    assert sum(1 for _ in source.documents()) == 1
    assert source.skipped.count == 5000
    assert len(list(source.skipped)) == source.skipped.LIMIT


@pytest.mark.parametrize(
    ("options", "mapping", "expected"),
    [
        ({}, "id = 'id'; title = 'title'; text = 'body'; metadata = 'sku'", ("1", "T", "B")),
        ({"id_field": "sku", "text_fields": ["title", "body"]}, "id = 'sku'; text = 'title' + 'body'; metadata = 'id'", ("s", "", "T\nB")),
        ({"id_field": "sku", "title_field": "body", "text_fields": ["id"]}, "id = 'sku'; title = 'body'; text = 'id'; metadata = 'title'", ("s", "B", "1")),
    ],
)  # fmt: skip
def test_fields_can_be_named_and_which_are_read_as_what_is_said(tmp_path, options, mapping, expected):
    path = write(tmp_path, b'{"id": "1", "sku": "s", "title": "T", "body": "B"}\n')
    source = open_source(path, **options)
    assert source.remarks == [f"{path}: on its first line, {mapping}."]
    assert [(each.id, each.title, each.text) for each in source.documents()] == [expected]
    assert open_source(write(tmp_path, b'{"id": \n')).remarks == []  # what cannot be read is left to reading


def read_export(path, **options):
    source = open_source(path, **options)
    return {each.id: (each.title, each.text, dict(each.metadata)) for each in source.documents()}, source


def written(tmp_path, *lines):
    return write(tmp_path, "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines))


@pytest.fixture
def exports(shared):
    if not (folder := shared / "cases" / "exports").is_dir():
        pytest.skip("the cases stand beside the project and are not here")
    return folder


@pytest.mark.parametrize("id_field", [None, "_id.$oid", "_id"])
def test_mongoexport(exports, id_field):
    documents, source = read_export(exports / "articles.json", id_field=id_field, text_fields=["text"])
    first, second = ({"views": views, "published": f"2024-05-01T10:00:00{zone}"} for views, zone in ((120, "Z"), (9, "+00:00")))
    metadata = {key: of for key, (_, _, of) in documents.items()}
    assert metadata == {"64c91330c2a74205feef694b": first, "64c91330c2a74205feef694c": second}
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
    documents, _ = read_export(written(tmp_path, {"_id": {"$numberLong": "7"}, "text": "tea", **extended}))
    assert documents["7"] == ("", "tea", {key: plain for key, (_, plain) in values.items()})
    deep = '{"$date": ' * 600 + "1" + "}" * 600
    with pytest.raises(InputError, match="nested"):
        read_export(written(tmp_path, f'{{"_id": "1", "text": "tea", "x": {deep}}}'))


@pytest.mark.parametrize(
    "options", [{}, {"title_field": "_source.title", "text_fields": ["_source.text"]}, {"title_field": "title"}]
)
def test_elasticdump(exports, options):
    documents, source = read_export(exports / "dump.json", **options)
    assert documents == {
        "a1": ("Green tea", "Green tea is steeped at 75 degrees.", {"views": 120}),
        "a2": ("Coffee", "Coffee is ground just before brewing.", {"views": 9}),
    }
    assert "hits of an index; on its first line, id = '_id'" in source.remarks[0]


def test_bulk_packed_and_from_standard_input(exports, monkeypatch):
    content = gzip.compress((exports / "bulk.ndjson").read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    documents, source = read_export("-")
    made_of = {"12": ("Tea", "leaves"), "13": ("Coffee", "beans")}
    assert documents == {key: (of, f"{of} is a drink made of {what}.", {"namespace": 0}) for key, (of, what) in made_of.items()}
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
    documents, _ = read_export(written(tmp_path, *lines))
    texts = {"1": "ONE", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven"}
    assert {key: text for key, (_, text, _) in documents.items()} == texts
    assert documents["1"] == ("a", "ONE", {"tags": {"x": 1, "y": 2}})
    # Without ids they are numbered, and may have their own.
    assert list(read_export(written(tmp_path, {"index": {}}, {"text": "one"}, {"index": {}}, {"text": "two"}))[0]) == ["2", "4"]
    assert list(read_export(written(tmp_path, {"index": {}}, {"id": "a", "text": "one"}))[0]) == ["a"]


def test_nested_fields_can_be_named(tmp_path):
    path = written(tmp_path, {"meta": {"sku": 7, "brand": "x"}, "head": {"line": "Tea"}, "body": {"main": "Green."}})
    documents, source = read_export(path, id_field="meta.sku", title_field="head.line", text_fields=["body.main"])
    assert documents == {"7": ("Tea", "Green.", {"meta": {"brand": "x"}})}
    assert "id = 'meta.sku'; title = 'head.line'; text = 'body.main'" in source.remarks[0]


def test_a_document_with_a_field_of_an_export_stays_a_document(tmp_path):
    documents, source = read_export(written(tmp_path, {"id": "1", "text": "x", "index": {"_id": "2"}, "_source": "feed"}))
    assert documents == {"1": ("", "x", {"index": {"_id": "2"}, "_source": "feed"})}
    assert source.kind == "jsonl/1"
