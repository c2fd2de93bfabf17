"""JSON lines: what is read, what is named, what is left out, and how much memory it takes."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.corpora import open_source
from termweave.errors import UsageError
from termweave.support.normal_form import normal_value

GOOD = b'{"_id": "a", "title": "T", "text": "one"}\n'


def read(path, **options):
    return list(open_source(path, **options).documents())


def write(folder, content, name="corpus.jsonl"):
    path = folder / name
    path.write_bytes(content)
    return path


NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]))
OTHERS = {
    "year": st.integers(-(2**63), 2**64 - 1),
    "tags": st.lists(NO_SURROGATES),
    "nested": st.dictionaries(NO_SURROGATES, st.none()),
}
REQUIRED = {"_id": NO_SURROGATES.filter(bool), "text": NO_SURROGATES, "title": NO_SURROGATES}
RECORDS = st.lists(st.fixed_dictionaries(REQUIRED, optional=OTHERS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(records=RECORDS, packed=st.booleans(), end=st.sampled_from(["\n", "\r\n", "\n\n \n"]), ascii_only=st.booleans())
def test_what_is_written_is_read(tmp_path, records, packed, end, ascii_only):
    content = end.join(json.dumps(each, ensure_ascii=ascii_only) for each in records).encode()
    path = write(tmp_path, gzip.compress(content, 1) if packed else content)
    found = read(path)
    expected = [{**normal_value(each), "_id": each["_id"]} for each in records]
    assert [{"_id": each.id, "text": each.text, "title": each.title, **each.metadata} for each in found] == expected


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
    (found,) = read(write(tmp_path, line.encode()))
    assert (found.id, found.title, found.text, dict(found.metadata)) == expected


def test_lines_are_counted_as_an_editor_counts_them_and_byte_order_marks_go_wherever_they_stand(tmp_path):
    assert read(write(tmp_path, b" \n\n")) == []
    mark = b"\xef\xbb\xbf"
    found = read(write(tmp_path, mark + b'\n\n{"text": "x"}\r\n   \n' + mark + b'{"text": "y"}'))
    assert [(each.id, each.line) for each in found] == [("3", 3), ("5", 5)]


def test_skipped_lines_are_all_counted_and_the_first_kept(tmp_path):
    source = open_source(write(tmp_path, GOOD + b"{broken\n" * 5000), skip_bad=True)
    assert sum(1 for _ in source.documents()) == 1
    assert source.skipped.count == 5000
    assert len(list(source.skipped)) == source.skipped.LIMIT


def test_a_file_that_may_not_be_read(tmp_path):
    path = write(tmp_path, GOOD)
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(UsageError, match="cannot be opened"):
            open_source(path)
    else:
        pytest.skip("this user may read everything")


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
