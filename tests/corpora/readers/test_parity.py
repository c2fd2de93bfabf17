"""One table of readers: each gives the same documents, as often as asked, counts what it read, and has a fingerprint of the content."""

import io
import json

import pytest

from termweave.corpora import open_source

ROWS = [{"id": f"d{number}", "title": f"title {number}", "text": f"text of {number}, in one line"} for number in range(300)]


def jsonl(rows):
    return {"corpus.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def bulk(rows):
    parts = [part for row in rows for part in ({"index": {"_id": row["id"]}}, {"title": row["title"], "text": row["text"]})]
    return {"bulk.ndjson": "\n".join(map(json.dumps, parts))}


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
        for name, content in files.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_source(tmp_path / str(number) / next(iter(files)).partition("/")[0], **options)

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
