"""All readers in one table: each gives the same documents, as often as asked; what is bad in a file is named with its place or left out."""

import io
import json

import pytest

from termweave.corpora import open_source
from termweave.corpora.formats import lines
from termweave.errors import InputError, UsageError
from tests.corpora.files import make

JSON = b'{"_id": "a", "title": "T", "text": "one"}\n'
TABLE = b"id,text,x\n" + b"".join(b'%d,"good, quoted",\n' % number for number in range(1, 40))
ACTION = b'{"index": {"_id": "1"}}\n'

#: Name of the file -> what stands before and behind a bad entry, and the number of good entries.
AROUND = {
    "corpus.jsonl": (JSON * 6, b"\n" + JSON, 7),
    "table.csv": (TABLE, b"98,behind,\n99,last,\n", 41),
    "dump.json": (b'{"_id": "0", "_source": {"text": "x"}}\n', b"", 1),
    "bulk.ndjson": (b'{"index": {"_id": "0"}}\n{"text": "x"}\n', b"", 1),
    "docs/b.txt": (b"", b"", 2),
}
ENTRIES = [
    ("corpus.jsonl", b'{"_id": "b", "text": "one"', ", line 7: broken JSON at column 27: unexpected end of data"),
    ("corpus.jsonl", b'{"_id": "b", "text": NaN}', ", line 7: broken JSON at column 22: NaN is not a JSON number"),
    ("corpus.jsonl", b'{"_id": "b", "text": "\\ud800"}', ", line 7: broken JSON at column 23: no low surrogate"),
    ("corpus.jsonl", b'{"_id": "b", "text": "\xff"}', ", line 7: byte 0xff at column 23 is not UTF-8"),
    ("corpus.jsonl", b"\0\0\0\0", ", line 7: a NUL byte at column 1"),
    ("corpus.jsonl", b"[" * 5000, ", line 7: broken JSON at column"),
    ("corpus.jsonl", b'["_id", "b"]', ", line 7: an array where an object should be (`jq -c '.[]'` puts each object on a line of its own)"),
    ("corpus.jsonl", b"null", ", line 7: null where an object should be"),
    ("corpus.jsonl", b'{"_id": "b"}', ", line 7: neither a title nor a text"),
    ("corpus.jsonl", b'{"_id": "", "text": "x"}', ", line 7: '_id' is empty"),
    ("corpus.jsonl", b'{"_id": 1.5, "text": "x"}', ", line 7: '_id' is 1.5"),
    ("corpus.jsonl", b'{"_id": 123456789012345678901234567890, "text": "x"}', ", line 7: '_id' is 1.23"),
    ("corpus.jsonl", b'{"_id": "b", "text": ["x"]}', ", line 7: 'text' is [\"x\"] where a string should be"),
    ("corpus.jsonl", b'{"_id": "b", "text": "x", "title": {}}', ", line 7: 'title' is {}"),
    ("corpus.jsonl", b'{"text": "x"}', ", line 7: no id, though earlier documents have one"),
    ("corpus.jsonl", b'{"_id": "b", "text": "%s"}' % (b"x" * 9000), ", line 7: longer than 6 kB"),
    ("table.csv", b"41,too,many,cells\n", ", line 41: 4 cells where 3 should be"),
    ("table.csv", b"41,caf\xe9,\n", ", line 41: byte 0xe9 at column 7 is not UTF-8"),
    ("table.csv", b"41,a\0b,\n", ", line 41: a NUL byte at column 5"),
    ("table.csv", b',"no id",\n', ", line 41: 'id' is empty"),
    ("table.csv", b'41,"a\nb\xe9\nc",\n', ", line 41: on line 42, byte 0xe9 at column 2 is not UTF-8"),
    ("table.csv", b'41,"a" b,\n', ", line 41: a quoted cell has text after its closing quote"),
    ("table.csv", b'41,"never closed,\n', ", line 41: a quote that opens here is never closed, up to line 43"),
    ("table.csv", b"41,a\rb,\n", ", line 41: a carriage return in the middle of a line"),
    ("dump.json", b'{"_id": "2"}', ", line 2: no _source, though the first line has one"),
    ("bulk.ndjson", b'{"text": "y"}', ", line 3: no action of the _bulk API where one should be"),
    ("bulk.ndjson", ACTION, ", line 3: an action without a document below it"),
    ("bulk.ndjson", ACTION + b"{broken", ", line 4: broken JSON"),
    ("bulk.ndjson", b'{"index": {"_id": ["1"]}}\n{"text": "x"}', ", line 4: index without an _id that is a text"),
    ("bulk.ndjson", b'{"update": {"_id": "1"}}\n{"doc": {"text": "x"}}', ", line 4: an update of '1', which no line before it holds"),
    ("bulk.ndjson", b'{"update": {"_id": "1"}}\n{"script": "x"}', ", line 4: an update without a doc"),
    ("docs/b.txt", b"one\ntwo\xff", ", line 2: byte 0xff at column 4 is not UTF-8"),
    ("docs/b.txt", b"one\n\ntwo\0", ", line 3: a NUL byte: this is not a text"),
    ("docs/b.txt", "text".encode("utf-16"), ", line 1: UTF-16 or UTF-32, but it must be UTF-8"),
    ("docs/b.txt", b"\x1f\x8b\x08\0\0\0\0\0\x02\xff", ": compressed, and damaged or cut short"),
    ("docs/b.txt", b"x" * 9000, ": longer than 6 kB"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bad", "sentence"), ENTRIES)
def test_a_bad_entry_is_named_or_left_out(tmp_path, monkeypatch, name, bad, sentence):
    monkeypatch.setattr(lines, "MAX_LINE", 6000)
    before, behind, good = AROUND[name]
    make(tmp_path, {name: before + bad + behind, "docs/a.txt": "good", "docs/c.txt": "good"})
    opened = tmp_path / name.partition("/")[0]
    with pytest.raises(InputError) as caught:
        list(open_source(opened).documents())
    assert f"{tmp_path / name}{sentence}" in str(caught.value)
    assert caught.value.hint
    source = open_source(opened, skip_bad=True)
    for _ in range(2):  # a second pass starts its list anew
        assert len(list(source.documents())) == source.total == good
        assert source.skipped.count == 1
        assert sentence in str(next(iter(source.skipped)))


NO_TABLES = [
    b"Some prose, with commas, that goes on.\nA second line; it has none.\n\nThe end.\n",
    b"# Markdown\n\n| a | b |\n|---|---|\n",
    b"import os\nfrom sys import argv, exit\nprint(argv, 1, 2)\n",
    *(b"id\x00,text\n1,2\n", b"one column\nonly\n", b"x" * 300_000, b"\x7fELF\0\0", b"\x89PNG\r\n\x1a\n\0\0"),
]
ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
UNKNOWN, WIDE = r"format of .* is not known", r"is UTF-16 or UTF-32.*iconv"
FILES = [
    ("corpus.jsonl", b'{"text": "x"}\n{"_id": "1", "text": "y"}\n', {}, 'line 2: the id "1", though earlier documents have no id'),
    ("corpus.jsonl", b'[{"_id": "a", "text": "x"}]', {}, "jq -c"),
    ("corpus.jsonl", json.dumps({"_id": "a", "text": "x"}, indent=2).encode(), {}, r"line 1: broken JSON: .* over several lines .`jq -c \.`"),
    ("corpus.jsonl", json.dumps([{"_id": "a"}], indent=2).encode(), {}, r"line 1: broken JSON: .* over several lines .`jq -c '\.\[\]'`"),
    ("corpus.jsonl", b'{"uuid": "a", "headline": "x"}\n', {}, r"among 'uuid', 'headline' \(title_field and text_fields name"),
    ("corpus.jsonl", b'{"_id": "%s", "text": "tea"}\n' % (b"x" * 8001), {}, "line 1: the id 'x.*' has 8,001 characters, and an id has at most 8,000"),
    *(("corpus.jsonl", JSON.decode().encode(encoding), {}, WIDE) for encoding in ENCODINGS),
    *(("table.csv", "id,text\n1,x\n".encode(encoding), {}, WIDE) for encoding in ENCODINGS),
    ("table.csv", b"id,text,Gr\xf6\xdfe\n1,a,2\n", {"skip_bad": True}, r"header line of .*table\.csv is not UTF-8.*iconv"),  # without it no row has names
    ("table.csv", b"name,about\nN,A\n", {}, "no column has a usual name for the text; its first line is: 'name', 'about'"),
    ("table.csv", b"name,about\nN,A\n", {"text_fields": ["abuot"]}, "no column 'abuot'; its first line is: 'name', 'about'"),
    ("table.csv", b"d1,the cat\nd2,a dog\n", {"text_fields": ["9"]}, "no column '9'.*a document, give the columns' numbers, 1 to 2;"),
    ("table.csv", b"id,x,x,text\n1,2,3,4\n", {}, "two columns called 'x'"),
    ("table.csv", b"id,text\n1,2\n", {"text_fields": ["text", "text"]}, "The field 'text' is named twice"),
    ("table.csv", b"7\tsome text\n", {"id_field": "1", "text_fields": ["2"]}, UNKNOWN),  # one line could be anything
    ("table.csv", b"SKU^about\n1^a\n2^b\n", {"id_field": "SKU"}, r"commas, tabs, semicolons, bars, or by the character that a first line like `sep=\^`"),
    *(("table.csv", content, {}, UNKNOWN) for content in NO_TABLES),
    ("corpus", b"PK\x03\x04rest", {}, "a zip archive"),
    ("corpus", b"\xfd7zXZ\0rest", {}, "compressed with xz"),
    ("corpus", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", {}, "encrypted or older than 2007"),
    ("corpus", b"SQLite format 3\0", {}, "an SQLite database"),
    ("corpus", b"id;text\r1;a\r2;b\r", {}, "end in carriage returns only"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "sentence"), FILES)
def test_a_file_that_is_no_corpus_is_named(tmp_path, name, content, options, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((InputError, UsageError), match=sentence) as caught:
        list(open_source(tmp_path / name, **options).documents())
    assert caught.value.hint


ROWS = [{"id": f"d{number}", "title": f"title {number}", "text": f"text of {number}, in one line"} for number in range(300)]


def jsonl(rows):
    return {"corpus.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def bulk(rows):
    parts = [({"index": {"_id": row["id"]}}, {"title": row["title"], "text": row["text"]}) for row in rows]
    return {"bulk.ndjson": "\n".join(json.dumps(each) for part in parts for each in part)}


def dump(rows):
    hits = [{"_id": row["id"], "_source": {"title": row["title"], "text": row["text"]}} for row in rows]
    return {"dump.json": "\n".join(map(json.dumps, hits))}


def table(rows, mark=","):
    quote = '"' if mark == "," else ""
    lines = [f"{row['id']}{mark}{row['title']}{mark}{quote}{row['text']}{quote}\n" for row in rows]
    return {"table.txt": f"id{mark}title{mark}text\n{''.join(lines)}"}


def parquet(rows):
    pa = pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    content = io.BytesIO()
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in ("id", "title", "text")}
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), content, row_group_size=100)
    return {"table.parquet": content.getvalue()}


#: Name of a reader -> function that makes its files of rows, or those of the folder `set`.
READERS = {
    "jsonl": jsonl,
    "bulk": bulk,
    "hits": dump,
    "csv": table,
    "tsv": lambda rows: table(rows, "\t"),
    "parquet": parquet,
    "beir": lambda rows: {f"set/{name}": content for name, content in jsonl(rows).items()},
    "texts": lambda rows: {f"set/{row['id']}.md": f"# {row['title']}\n\n{row['text']}\n" for row in rows},
    "ir": lambda rows: {"docs.tsv": "".join(f"{row['id']}\t{row['text']}\n" for row in rows)},
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_gives_the_same_documents_as_often_as_asked(tmp_path, register, reader):
    number = 0

    def opened(rows, **options):
        nonlocal number
        number += 1
        files = READERS[reader](rows)
        if reader == "ir":
            register(f"termweave-parity-{number}", docs=files["docs.tsv"])
            return open_source(f"ir:termweave-parity-{number}", **options)
        return open_source(make(tmp_path / str(number), files) / next(iter(files)).partition("/")[0], **options)

    source, seen = opened(ROWS), []
    found = {each.id.removesuffix(".md"): (each.title, each.text) for each in source.documents(seen.append)}
    assert found == {row["id"]: ("" if reader == "ir" else row["title"], row["text"]) for row in ROWS}
    assert [each.id.removesuffix(".md") for each in source.documents()] == list(found)
    assert source.total == len(ROWS)
    assert seen == sorted(seen)
    assert seen[-1] == source.size
    assert not source.skipped
    assert int(source.fingerprint, 16)
    assert opened(ROWS).fingerprint == source.fingerprint != opened(ROWS[1:]).fingerprint
    if reader != "texts":
        assert opened(ROWS, text_fields=["text"]).fingerprint != source.fingerprint
        assert reader == "ir" or list(opened([]).documents()) == []
