"""JSON lines: what is read, what is named, what is left out, and how much memory it takes."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.corpora import open_source
from termweave.corpora.formats import lines as files
from termweave.errors import InputError, UsageError
from termweave.support.normal_form import normal_value

GOOD = b'{"_id": "a", "title": "T", "text": "one"}\n'


def read(path, **options):
    return list(open_source(path, **options).documents())


def write(folder, content, name="corpus.jsonl"):
    path = folder / name
    path.write_bytes(content)
    return path


NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]))
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"_id": st.text(st.characters(exclude_categories=["Cs"]), min_size=1), "text": NO_SURROGATES, "title": NO_SURROGATES},
        optional={
            "year": st.integers(-(2**63), 2**64 - 1),
            "tags": st.lists(NO_SURROGATES),
            "nested": st.dictionaries(NO_SURROGATES, st.none()),
        },
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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
        ('{"docid": "d", "body": "x", "title": null}', ("d", "", "x", {})),
        ('{"doc_id": "d", "content": "x", "url": "u"}', ("d", "", "x", {"url": "u"})),
        ('{"_id": "a", "id": 3, "title": "only a title"}', ("a", "only a title", "", {"id": 3})),
        ('{"_id": "a", "text": null, "title": ""}', ("a", "", "", {})),
        ('{"_id": "a", "text": "", "metadata": {"x": 1, "y": 2}, "y": 3}', ("a", "", "", {"x": 1, "y": 3})),
        ('{"_id": "a", "text": "t", "metadata": "flat"}', ("a", "", "t", {"metadata": "flat"})),
        ('{"text": "no id"}', ("1", "", "no id", {})),
        ('{"_id": "a", "text": "nul \\u0000 inside"}', ("a", "", "nul \0 inside", {})),
        ('{"_id": "%s", "text": ""}' % ("x" * 600), ("x" * 600, "", "", {})),
    ],
)
def test_the_keys_a_document_may_have(tmp_path, line, expected):
    (found,) = read(write(tmp_path, line.encode()))
    assert (found.id, found.title, found.text, dict(found.metadata)) == expected


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    found = read(write(tmp_path, b'\n\n{"text": "x"}\r\n   \n{"text": "y"}'))
    assert [(each.id, each.line) for each in found] == [("3", 3), ("5", 5)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"_id": "b", "text": "one"', "broken JSON at column 27: expecting ',' delimiter"),
        (b'{"_id": "b", "text": NaN}', "broken JSON at column 22: NaN is not a JSON number"),
        (b'{"_id": "b", "text": "x", "n": 1e999}', "broken JSON at column"),
        (b'{"_id": "b", "text": "\\ud800"}', "half of a surrogate pair"),
        (b'{"_id": "b", "text": "\xff"}', "byte 0xff at column 23 is not UTF-8"),
        (b'{"_id": "b", "text": "\xed\xa0\x80"}', "byte 0xed at column 23 is not UTF-8"),
        (b"\0\0\0\0", "a NUL byte at column 1"),
        (b"[" * 5000, "broken JSON at column"),
        (b'["_id", "b"]', "an array where an object should be (`jq -c '.[]'` puts each object on a line of its own)"),
        (b'"text"', "a string where an object should be"),
        (b"3", "a number where an object should be"),
        (b"null", "null where an object should be"),
        (b'{"_id": "b"}', "neither a title nor a text"),
        (b'{"_id": "", "text": "x"}', "'_id' is empty"),
        (b'{"_id": 1.5, "text": "x"}', "'_id' is 1.5"),
        (b'{"_id": true, "text": "x"}', "'_id' is true"),
        (b'{"_id": null, "text": "x"}', "'_id' is null"),
        (b'{"_id": 123456789012345678901234567890, "text": "x"}', "'_id' is 1.23"),
        (b'{"_id": "b", "text": ["x"]}', "'text' is [\"x\"] where a string should be"),
        (b'{"_id": "b", "text": 3}', "'text' is 3"),
        (b'{"_id": "b", "text": "x", "title": {}}', "'title' is {}"),
        (b'{"text": "x"}', "no id, though earlier documents have one"),
    ],
)
def test_a_bad_line_7_is_named_or_left_out(tmp_path, line, reason):
    path = write(tmp_path, GOOD * 6 + line + b"\n" + GOOD)
    with pytest.raises(InputError) as caught:
        read(path)
    assert f"corpus.jsonl, line 7: {reason}" in str(caught.value)
    assert caught.value.hint

    source = open_source(path, skip_bad=True)
    for _ in range(2):  # a second pass starts its list anew
        assert [each.line for each in source.documents()] == [1, 2, 3, 4, 5, 6, 8]
        assert [each.line for each in source.skipped] == [7]
        assert source.skipped.count == 1
        assert reason in str(next(iter(source.skipped)))
    assert source.total == 7


def test_numbered_documents_and_ids_do_not_mix(tmp_path):
    with pytest.raises(InputError, match='line 2: the id "1"'):
        read(write(tmp_path, b'{"text": "x"}\n{"_id": "1", "text": "y"}\n'))


def test_an_array_over_the_whole_file_says_how_to_turn_it(tmp_path):
    with pytest.raises(InputError, match="jq -c"):
        read(write(tmp_path, b'[{"_id": "a", "text": "x"}]'))


@pytest.mark.parametrize(("value", "command"), [({"_id": "a", "text": "x"}, "`jq -c .`"), ([{"_id": "a"}], r"`jq -c '\.\[\]'`")])
def test_a_value_over_several_lines_says_how_to_turn_it(tmp_path, value, command):
    with pytest.raises(InputError, match=f"line 1: broken JSON: .* over several lines .{command}"):
        read(write(tmp_path, json.dumps(value, indent=2).encode()))
    with pytest.raises(InputError, match=f"line 1: broken JSON: .* over several lines .{command}"):
        read(write(tmp_path, json.dumps(value, indent=2).replace("\n", "", 1).encode()))  # the first entry beside the bracket


def test_fields_of_other_names_are_named_with_the_options(tmp_path):
    path = write(tmp_path, b'{"uuid": "a", "headline": "x", "article": "y"}\n')
    with pytest.raises(InputError, match=r"among 'uuid', 'headline', 'article' \(id_field, title_field and text_fields"):
        read(path)
    (document,) = read(path, id_field="uuid", title_field="headline", text_fields=["article"])
    assert (document.id, document.title, document.text) == ("a", "x", "y")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings_are_named(tmp_path, encoding):
    with pytest.raises(InputError, match=r"corpus\.jsonl is UTF-16 or UTF-32.*iconv"):
        read(write(tmp_path, GOOD.decode().encode(encoding)))


def test_byte_order_marks_go_wherever_they_stand(tmp_path):
    mark = b"\xef\xbb\xbf"
    assert len(read(write(tmp_path, mark + GOOD + mark + GOOD))) == 2


def test_packed_is_recognised_by_content_not_by_name(tmp_path):
    packed = gzip.compress(GOOD) + gzip.compress(GOOD)  # two members, as of concatenated files
    assert len(read(write(tmp_path, packed, "packed.jsonl"))) == 2
    assert len(read(write(tmp_path, GOOD, "plain.jsonl.gz"))) == 1


@pytest.mark.parametrize("keep", [0.9, 0.2, 0.001])
def test_a_packed_file_cut_short_is_named(tmp_path, keep):
    packed = gzip.compress(b"".join(b'{"_id": "%d", "text": "%d"}\n' % (n, n * n) for n in range(50_000)))
    path = write(tmp_path, packed[: max(4, int(len(packed) * keep))], "corpus.jsonl.gz")
    with pytest.raises(InputError, match=r"corpus\.jsonl\.gz is compressed, and damaged or cut short"):
        read(path, skip_bad=True)  # what is lost with the end of a file is not a line to skip


def test_an_empty_file_is_a_corpus_without_documents(tmp_path):
    assert read(write(tmp_path, b"")) == []
    assert read(write(tmp_path, b" \n\n", "blank")) == []


def test_a_line_without_end_is_refused_and_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 1 << 20)
    path = write(tmp_path, GOOD + b'{"_id": "b", "text": "' + b"x" * (40 << 20) + b'"}\n' + GOOD)
    with pytest.raises(InputError, match="line 2: longer than 1 MB"):
        read(path)
    tracemalloc.start()
    assert [each.line for each in open_source(path, skip_bad=True).documents()] == [1, 3]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


@pytest.mark.parametrize("packed", [False, True])
def test_memory_does_not_grow_with_the_corpus(tmp_path, packed):
    line = b'{"_id": "%d", "title": "some title", "text": "' + b"word " * 400 + b'"}\n'
    path = tmp_path / "corpus.jsonl"
    with gzip.open(path, "wb", 1) if packed else path.open("wb") as stream:
        stream.writelines(line % number for number in range(25_000))
    source, seen = open_source(path), []
    tracemalloc.start()
    count = sum(1 for _ in source.documents(seen.append))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == source.total == 25_000
    assert peak < 4 << 20
    assert seen == sorted(seen)
    assert seen[-1] == source.size == path.stat().st_size


def test_skipped_lines_are_all_counted_and_the_first_kept(tmp_path):
    source = open_source(write(tmp_path, GOOD + b"{broken\n" * 5000), skip_bad=True)
    assert sum(1 for _ in source.documents()) == 1
    assert source.skipped.count == 5000
    assert len(list(source.skipped)) == source.skipped.LIMIT


def test_the_fingerprint_is_of_the_content(tmp_path):
    one = open_source(write(tmp_path, GOOD, "one"))
    before = one.fingerprint
    assert before == open_source(write(tmp_path, GOOD, "two")).fingerprint
    assert int(before, 16)
    write(tmp_path, GOOD + GOOD, "one")
    assert one.fingerprint != before


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
    ("options", "mapping"),
    [
        ({}, "id = 'id'; title = 'title'; text = 'body'; metadata = 'sku', 'year'"),
        ({"id_field": "sku", "text_fields": ["title", "body"]}, "id = 'sku'; text = 'title' + 'body'; metadata = 'id', 'year'"),
    ],
)
def test_which_keys_are_read_as_what_is_said(tmp_path, options, mapping):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "1", "sku": "s", "title": "T", "body": "B", "year": 2020}\n')
    assert open_source(path, **options).remarks == [f"{path}: on its first line, {mapping}."]


def test_a_first_line_that_cannot_be_read_is_left_to_reading(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": \n')
    assert open_source(path).remarks == []
