"""`termweave encode`: the same bytes wherever the folder is, exact statistics, resuming, proof of what is read, refusals."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave import corpora, encoders
from termweave.errors import InputError
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.preparation.corpus_pass import read_corpus
from termweave.indexer.shards.corpus_encoding import encode_on_ray
from termweave.indexer.shards.store import MANIFEST, is_url
from termweave.records import Document

from .conftest import rewrite, texts

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "encode-shards.1.json").read_text())


def files(folder, beginning=""):
    """Name -> content of the files whose names have this beginning, without the lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(beginning) and path.name != ".lock"}


def count_of(folder):
    return len(list(corpora.open_source(folder).documents()))


def one_pass(path, tmp_path, **options):
    """The statistics and the sample of one pass over the corpus, as a build counts them."""
    source, encoder = corpora.open_source(path, **options), encoders.load(weights="bm25-german", dense="none")
    with Ledger(tmp_path / "one.sqlite") as ledger:
        return read_corpus(source, encoder, ledger, skip_bad=bool(options), progress=lambda *_: None)


def test_the_folder_may_be_a_url_and_is_private(write, encode, tmp_path):
    import fsspec

    path, url = write(texts(200)), f"memory://{tmp_path.name}/shards"
    said = encode(path, f"file://{tmp_path}/url")
    jsonschema.validate(said, SCHEMA)
    assert (said["texts"], said["shards"], said["encoded"]) == (200, 13, {"shards": 13, "texts": 200})
    encode(path, tmp_path / "a::b")  # which is no URL
    encode(path, url)
    memory = fsspec.filesystem("memory")
    there = {name.rpartition("/")[2]: memory.cat_file(name) for name in memory.ls(f"/{tmp_path.name}/shards", detail=False)}
    assert files(tmp_path / "url") == files(tmp_path / "a::b") == there
    assert {name[:6] for name in there} == {"shard-", "sample", "statis", "termwe"}
    assert count_of(url) == count_of(tmp_path / "a::b") == 200
    assert not [path for path in (tmp_path / "a::b", *(tmp_path / "a::b").glob("*.parquet")) if path.stat().st_mode & 0o077]


def test_statistics_and_sample_are_those_of_one_pass(write, encode, tmp_path):
    documents = texts(700)
    documents[300] = documents[5]  # the same document again: counted once
    path = write(documents)
    said = encode(path, tmp_path / "shards")
    corpus = one_pass(path, tmp_path)
    assert (said["statistics"], said["texts"]) == (corpus.statistics.hash, 699)
    assert said["notes"][1:] == ["1 document left out, with the id and content of an earlier document."]
    sample = corpora.open_source(tmp_path / "shards").encodings.sample
    assert [encoding.text for encoding in sample] == [document.content for document in corpus.sample]


def test_bad_entries_are_refused_or_left_out_as_in_a_build(write, encode, tmp_path):
    documents = texts(40)
    documents[33] = {**documents[2], "text": "etwas anderes"}
    path = write(documents)
    said = encode(path, tmp_path / "s", status=1)
    assert "corpus.jsonl: line 34 has the id 'd2' of line 3, with other content" in said
    assert "--skip-bad" in said
    path.write_bytes(path.read_bytes() + b"{broken\n")
    assert "corpus.jsonl" in encode(path, tmp_path / "t", status=1)
    said = encode(path, tmp_path / "s", "--skip-bad")
    assert (said["texts"], said["statistics"]) == (39, one_pass(path, tmp_path, skip_bad=True).statistics.hash)
    assert "left out, because an earlier document with other content has the same id" in said["warnings"][0]
    assert any("1 entry could not be read" in note for note in said["notes"])
    assert "skip_bad was on and is off" in encode(write(texts(40)), tmp_path / "s", status=2)


def test_finished_shards_are_not_encoded_again(write, encode, tmp_path):
    path, folder = write(texts(64)), tmp_path / "shards"
    encode(path, folder)
    whole = files(folder)
    times = {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}
    (folder / "shard-000002.parquet").unlink()  # because it is damaged, say: its texts are read from the corpus again
    assert encode(path, folder)["encoded"] == {"shards": 1, "texts": 16}
    assert files(folder) == whole
    changed = {path.name for path in folder.glob("shard-*") if times[path.name] != path.stat().st_mtime_ns}
    assert changed == {"shard-000002.parquet"}
    (folder / "sample.parquet").unlink()
    assert encode(path, folder)["encoded"] == {"shards": 0, "texts": 0}
    assert files(folder) == whole


@pytest.mark.parametrize(
    ("count", "options", "parts"),
    [
        (20, ("--passage-size", "40"), ["another corpus, model or option: passages was none and is {'size': 40"]),
        (21, (), ["fingerprint was that of corpus.jsonl (", "is that of other.jsonl ("]),
        (20, ("--weights", "bm25-dutch"), ["models was weights bm25-german"]),
    ],
)
def test_another_corpus_or_option_is_refused(write, encode, tmp_path, count, options, parts):
    encode(write(texts(20)), tmp_path / "shards")
    said = encode(write(texts(count), "other.jsonl" if count == 21 else "corpus.jsonl"), tmp_path / "shards", *options, status=2)
    assert all(part in said for part in parts), said


@pytest.mark.parametrize(
    ("source", "folder", "options", "said"),
    [
        ("opensearch:products", "new", (), "is an index, which changes"),
        ("https://me:secret@old:9200/products", "new", (), "https://me:***@old:9200/products is an index"),
        ("corpus.jsonl", "new", ("--weights", "none"), "Without a model there is nothing to encode"),
        ("corpus.jsonl", "", (), "--out names no folder"),
        ("corpus.jsonl", "nonsense://bucket/shards", (), "nonsense://bucket/shards cannot be opened"),
        ("shards", "new", (), "is encoded already, and it need not be encoded again"),
    ],
)
def test_what_cannot_be_encoded_is_refused(write, encode, tmp_path, monkeypatch, source, folder, options, said):
    monkeypatch.chdir(tmp_path)
    encode(write(texts(3)), "shards")
    assert said in encode(source, folder, *options, status=2)
    assert {path.name for path in tmp_path.iterdir()} <= {"corpus.jsonl", "shards", "new"}


@pytest.mark.parametrize(
    "change",
    [
        {"shards": 0}, {"shards": "2"}, {"shards": 10**12}, {"texts": 10**30}, {"models": []}, {"source": 5}, {"notes": "x"},
        {"passages": {"size": 10**9}}, {"statistics": None}, {"format": "2"},
        {"models": {"dense": {"name": "x", "hash": "y", "dimension": 10**9, "analysis": None, "max_length": 5}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_was_edited_is_damaged(write, encode, tmp_path, change):
    encode(write(texts(9)), tmp_path / "shards")
    manifest = tmp_path / "shards" / MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(InputError, match=r"(termweave-shards.json in .* is damaged|has shards of format|has other columns)"):
        assert corpora.open_source(tmp_path / "shards").encodings


def test_files_of_shards_without_a_manifest_are_refused(write, encode, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(20)), folder)
    (folder / MANIFEST).unlink()
    said = encode(write(texts(20, seed=1), "other.jsonl"), folder, status=2)
    assert "has files of shards, such as shard-000000.parquet" in said
    for path in folder.glob("shard-*"):
        path.unlink()
    (folder / "notes.txt").write_text("no file of a shard")
    assert encode(write(texts(20, seed=1), "other.jsonl"), folder)["texts"] == count_of(folder) == 20


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("pyarrow.parquet", "Shards are Parquet files, and pyarrow is not installed"),
        ("fsspec", "Shards are Parquet files, and fsspec is not installed"),
        ("ray", "Ray is not installed"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(write, encode, tmp_path, monkeypatch, module, said):
    monkeypatch.setattr("termweave.indexer.shards.corpus_encoding.encode_on_ray", encode_on_ray)
    monkeypatch.setitem(sys.modules, module, None)
    told = encode(write(texts(3)), tmp_path / "shards", status=2)
    assert said in told
    assert "pip install" in told


def changed(column, change):
    """A change of the values of a column of a shard."""
    return lambda table: {column: change(table.column(column).to_pylist())}


def test_a_text_or_an_encoding_that_was_altered_is_refused(write, encode, tmp_path):
    """Somebody rewrites a shard: the checksums of its pages are right, the digests are not."""
    documents = [{"_id": f"d{number}", "text": f"The kettle number {number} is cleaned with vinegar."} for number in range(10)]
    encode(write(documents), tmp_path / "whole", quick=False)
    altered, empty = "not what was encoded", "a field is empty"
    for number, (reason, change) in enumerate((
        (altered, changed("title", lambda values: ["Ein anderer Titel", *values[1:]])),
        (altered, changed("vector", lambda values: values[::-1])),
        (altered, changed("digest", lambda values: values[::-1])),
        (altered, changed("weights", lambda values: [[float("nan") for _ in row] for row in values])),
        (altered, changed("terms", lambda values: [[row[0]] * len(row) for row in values])),
        (empty, changed("id", lambda values: [None, *values[1:]])),
        (empty, changed("metadata", lambda values: ["{", *values[1:]])),
    )):  # fmt: skip
        folder = shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        rewrite(folder / "shard-000000.parquet", change)
        with pytest.raises(InputError, match=rf"shard-000000.parquet in .* is damaged: .*{reason}"):
            count_of(folder)


def test_a_shard_that_is_damaged_or_of_another_number_model_or_length_is_named(write, encode, tmp_path):
    """A file in the place of another one is whole; its documents would be there twice, others not at all."""
    import pyarrow.parquet as pq

    folder, other, path = tmp_path / "shards", tmp_path / "other", write(texts(64))
    encode(path, folder)
    encode(path, other, "--weights", "bm25-dutch")
    shard = folder / "shard-000001.parquet"
    whole = shard.read_bytes()
    flipped = whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]
    for content, reason in (
        ((folder / "shard-000000.parquet").read_bytes(), "is damaged: .* not what was encoded for this folder"),
        ((other / "shard-000001.parquet").read_bytes(), "is damaged: .* not what was encoded for this folder"),
        (flipped, "(cannot be read|is damaged)"),
        (whole[:50], "cannot be read"),
    ):
        shard.write_bytes(content)
        with pytest.raises(InputError, match=rf"shard-000001\.parquet in .* {reason}"):
            count_of(folder)
    shard.write_bytes(whole)
    rows = pq.ParquetFile(shard).read_row_group(0)
    for table, reason in (
        (rows, "hold 56 texts, and 64 were encoded: one is cut off"),
        (rows.drop_columns(["digest"]), "has other columns"),
    ):
        pq.write_table(table, shard)
        with pytest.raises(InputError, match=reason):
            count_of(folder)


class Strange(Exception):
    """An error of a driver that is none of the system's."""


def test_an_error_of_a_file_system_is_a_sentence(write, encode, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def refused(*_, **__):
        raise Strange("no credentials")

    path = write(texts(3))
    with monkeypatch.context() as there:
        there.setattr(MemoryFileSystem, "ls", refused)
        assert "the folder in memory://refusing/a cannot be read: no credentials" in encode(path, "memory://refusing/a", status=1)
    monkeypatch.setattr(MemoryFileSystem, "mv", refused)
    assert "cannot be written to memory://refusing/b: no credentials" in encode(path, "memory://refusing/b", status=1)
    monkeypatch.setattr(MemoryFileSystem, "__init__", refused)
    MemoryFileSystem.clear_instance_cache()
    said = encode(path, "memory://me:secret@refusing/c", status=2)
    assert "memory://me:***@refusing/c cannot be opened: Strange" in said


def test_missing_shards_are_named(write, encode, tmp_path):
    encode(write(texts(40)), tmp_path / "shards")
    for number in (0, 2):
        (tmp_path / "shards" / f"shard-00000{number}.parquet").unlink()
    with pytest.raises(InputError, match=r"lacks 2 shards of 3 \(shard-000000.parquet, shard-000002.parquet\)"):
        corpora.open_source(tmp_path / "shards")


def test_only_urls_of_file_systems_are_folders_elsewhere():
    folders = ["s3://bucket/folder", "simplecache::s3://bucket/folder", "memory://folder"]
    others = ["https://host/index", "ubi:http://127.0.0.1:9200", "opensearch:https://host", "folder/with:colon"]
    assert [spec for spec in (*folders, *others) if is_url(spec)] == folders


def test_readers_of_shards_hold_one_block(write, encode, tmp_path):
    encode(write(texts(160)), tmp_path / "shards")
    gc.collect()
    before = sum(issubclass(type(each), Document) for each in gc.get_objects())
    documents = corpora.open_source(tmp_path / "shards").documents()
    for _ in range(100):
        next(documents)
    gc.collect()
    assert sum(issubclass(type(each), Document) for each in gc.get_objects()) - before <= 16  # with and without their encodings


def test_reading_a_shard_imports_no_pandas(write, encode, tmp_path):
    """Pandas takes 40 MB and half a second, and is imported by Arrow's own conversion to NumPy."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    encode(write(texts(20)), tmp_path / "shards")
    code = "import sys; from termweave import corpora; list(corpora.open_source(sys.argv[1]).documents()); print('pandas' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "shards")], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False"]
