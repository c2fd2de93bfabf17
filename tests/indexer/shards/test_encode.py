"""`termweave encode`: the same bytes however many processes write them, exact statistics, resuming, proof of what is read, refusals."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave import corpora, encoders
from termweave.errors import InputError
from termweave.indexer import BuildOptions, build
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


def one_pass(path, tmp_path, **options):
    """The statistics and the sample of one pass over the corpus, as a build counts them."""
    source = corpora.open_source(path, **options)
    with Ledger(tmp_path / "one.sqlite") as ledger:
        return read_corpus(
            source, encoders.load(weights="bm25-german", dense="none"), ledger, skip_bad=bool(options), progress=lambda *_: None
        )


def test_the_folder_may_be_a_url_and_is_private(write, encode, tmp_path):
    path = write(texts(200))
    said = encode(path, f"file://{tmp_path}/url")
    jsonschema.validate(said, SCHEMA)
    assert (said["texts"], said["shards"], said["encoded"]) == (200, 13, {"shards": 13, "texts": 200})
    encode(path, tmp_path / "one")
    assert files(tmp_path / "url") == files(tmp_path / "one")
    assert not [path for path in (tmp_path / "one", *(tmp_path / "one").glob("*.parquet")) if path.stat().st_mode & 0o077]
    assert {name[:6] for name in files(tmp_path / "one")} == {"shard-", "sample", "statis", "termwe"}


def test_statistics_and_sample_are_those_of_one_pass(write, encode, tmp_path):
    documents = texts(700)
    documents[300] = documents[5]  # the same document again: counted once
    path = write(documents)
    said = encode(path, tmp_path / "shards")
    corpus = one_pass(path, tmp_path)
    assert said["statistics"] == corpus.statistics.hash
    assert said["texts"] == 699
    assert said["notes"][1:] == ["1 document left out, with the id and content of an earlier document."]
    sample = corpora.open_source(tmp_path / "shards").encodings.sample
    assert [encoding.text for encoding in sample] == [document.content for document in corpus.sample]


def test_the_second_document_with_an_id_is_refused_or_left_out_as_in_a_build(write, encode, tmp_path):
    documents = texts(40)
    documents[33] = {**documents[2], "text": "etwas anderes"}
    path = write(documents)
    said = encode(path, tmp_path / "s", status=1)
    assert "corpus.jsonl: line 34 has the id 'd2' of line 3, with other content" in said
    assert "--skip-bad" in said
    said = encode(path, tmp_path / "s", "--skip-bad")
    assert said["texts"] == 39
    assert said["statistics"] == one_pass(path, tmp_path, skip_bad=True).statistics.hash
    assert "left out, because an earlier document with other content has the same id" in said["warnings"][0]
    assert "skip_bad was on and is off" in encode(path, tmp_path / "s", status=2)


def test_entries_that_cannot_be_read_are_named(write, encode, tmp_path):
    path = write(texts(20))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    assert "corpus.jsonl" in encode(path, tmp_path / "s", status=1)
    said = encode(path, tmp_path / "t", "--skip-bad")
    assert said["texts"] == 20
    assert any("1 entry could not be read" in note for note in said["notes"])


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


def test_another_corpus_or_option_is_refused(write, encode, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(20)), folder)
    said = encode(write(texts(20)), folder, "--passage-size", "40", status=2)
    assert "has shards of another corpus, model or option: passages was none and is {'size': 40" in said
    said = encode(write(texts(21), "other.jsonl"), folder, status=2)
    assert "fingerprint was that of corpus.jsonl (" in said
    assert "is that of other.jsonl (" in said
    said = encode(write(texts(20)), folder, "--weights", "bm25-dutch", status=2)
    assert "models was weights bm25-german" in said


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("opensearch:products", (), "is an index, which changes"),
        ("corpus.jsonl", ("--weights", "none"), "Without a model there is nothing to encode"),
    ],
)
def test_what_cannot_be_encoded_is_refused(write, encode, tmp_path, monkeypatch, source, options, said):
    write(texts(3))
    monkeypatch.chdir(tmp_path)
    assert said in encode(source, tmp_path / "shards", *options, status=2)


@pytest.mark.parametrize(
    "change",
    [
        {"shards": 0}, {"shards": "2"}, {"shards": 10**12}, {"texts": -1}, {"texts": 10**30}, {"models": []}, {"source": 5}, {"notes": "x"},
        {"passages": {"size": 10**9}}, {"statistics": None}, {"format": "2"}, {"format": None},
        {"models": {"dense": {"name": "x", "hash": "y", "dimension": 10**9, "analysis": None, "max_length": 5}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_was_edited_is_damaged(write, encode, tmp_path, change):
    folder = tmp_path / "shards"
    encode(write(texts(9)), folder)
    manifest = folder / "termweave-shards.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(InputError, match=r"(termweave-shards.json in .* is damaged|has shards of format|has other columns)"):
        assert corpora.open_source(folder).encodings


def test_files_of_shards_without_a_manifest_are_refused(write, encode, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(20)), folder)
    (folder / "termweave-shards.json").unlink()
    said = encode(write(texts(20, seed=1), "other.jsonl"), folder, status=2)
    assert "has files of shards, such as shard-000000.parquet" in said
    for path in folder.glob("shard-*"):
        path.unlink()
    (folder / "notes.txt").write_text("no file of a shard")
    assert encode(write(texts(20, seed=1), "other.jsonl"), folder)["texts"] == 20
    assert len(list(corpora.open_source(folder).documents())) == 20


def test_a_folder_whose_name_has_colons_is_a_folder(write, encode, tmp_path):
    encode(write(texts(9)), tmp_path / "a::b")
    assert not (tmp_path / "a").exists()
    assert len(list(corpora.open_source(tmp_path / "a::b").documents())) == 9


def test_an_empty_name_is_no_folder(write, encode, tmp_path, monkeypatch):
    path = write(texts(3))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "--out names no folder" in encode(path, "", status=2)
    assert not list((tmp_path / "here").iterdir())


def test_a_folder_of_shards_is_not_encoded_again(write, encode, tmp_path):
    encode(write(texts(3)), tmp_path / "shards")
    assert "is encoded already, and it need not be encoded again" in encode(tmp_path / "shards", tmp_path / "again", status=2)


def test_a_url_of_fsspec_holds_the_same_shards(write, encode, tmp_path):
    import fsspec

    path, url = write(texts(50)), f"memory://{tmp_path.name}/shards"
    encode(path, tmp_path / "shards")
    encode(path, url)
    memory = fsspec.filesystem("memory")
    there = {name.rpartition("/")[2]: memory.cat_file(name) for name in memory.ls(f"/{tmp_path.name}/shards", detail=False)}
    assert there == files(tmp_path / "shards", "")
    assert len(list(corpora.open_source(url).documents())) == 50


def test_a_scheme_without_a_file_system_is_named(write, encode, tmp_path):
    said = encode(write(texts(3)), "nonsense://bucket/shards", status=2)
    assert "nonsense://bucket/shards cannot be opened" in said


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


def test_a_damaged_shard_is_named(write, encode, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(30)), folder)
    shard = folder / "shard-000001.parquet"
    content = bytearray(shard.read_bytes())
    content[200] ^= 255
    shard.write_bytes(content)
    with pytest.raises(Exception, match=r"shard-000001\.parquet in .* (cannot be read|is damaged)"):
        list(corpora.open_source(folder).documents())
    shard.write_bytes(content[:50])
    with pytest.raises(Exception, match=r"shard-000001\.parquet in .* cannot be read"):
        list(corpora.open_source(folder).documents())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: {"title": ["Ein anderer Titel", *table.column("title").to_pylist()[1:]]}, "not what was encoded"),
        (lambda table: {"vector": table.column("vector").to_pylist()[::-1]}, "not what was encoded"),
        (lambda table: {"digest": table.column("digest").to_pylist()[::-1]}, "not what was encoded"),
        (lambda table: {"vector": [[1000 * x for x in row] for row in table.column("vector").to_pylist()]}, "length 1"),
        (lambda table: {"weights": [[-x for x in row] for row in table.column("weights").to_pylist()]}, "a positive number"),
        (lambda table: {"weights": [[float("nan") for _ in row] for row in table.column("weights").to_pylist()]}, "a positive number"),
        (lambda table: {"terms": [[row[0]] * len(row) for row in table.column("terms").to_pylist()]}, "without a weight, or with two"),
        (lambda table: {"id": [None, *table.column("id").to_pylist()[1:]]}, "a field is empty"),
        (lambda table: {"metadata": ["{", *table.column("metadata").to_pylist()[1:]]}, "a field is empty"),
    ],
)  # fmt: skip
def test_a_text_or_an_encoding_that_was_altered_is_refused(opensearch_engine, name, write, encode, tmp_path, change, reason):
    """Somebody rewrites a shard: the checksums of its pages are right, the digests are not, or no model gives such numbers."""
    documents = [{"_id": f"d{number}", "text": f"The kettle number {number} is cleaned with vinegar."} for number in range(10)]
    encode(write(documents), tmp_path / "shards", quick=False)
    rewrite(tmp_path / "shards" / "shard-000000.parquet", change)
    with pytest.raises(InputError, match=rf"shard-000000.parquet in .* is damaged: .*{reason}"):
        build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())


def test_a_shard_of_another_number_model_or_length_is_named(write, encode, tmp_path):
    """A file in the place of another one is whole; its documents would be there twice, others not at all."""
    import pyarrow.parquet as pq

    folder, other, path = tmp_path / "shards", tmp_path / "other", write(texts(64))
    encode(path, folder)
    encode(path, other, "--weights", "bm25-dutch")
    shard = folder / "shard-000001.parquet"
    own = shard.read_bytes()
    for wrong in (folder / "shard-000000.parquet", other / "shard-000001.parquet"):
        shard.write_bytes(wrong.read_bytes())
        with pytest.raises(Exception, match=r"shard-000001\.parquet in .* is damaged: .* not what was encoded for this folder"):
            list(corpora.open_source(folder).documents())
    shard.write_bytes(own)
    whole = pq.ParquetFile(shard).read_row_group(0)
    pq.write_table(whole, shard)
    with pytest.raises(Exception, match="hold 56 texts, and 64 were encoded: one is cut off"):
        list(corpora.open_source(folder).documents())
    pq.write_table(whole.drop_columns(["digest"]), shard)
    with pytest.raises(Exception, match="has other columns"):
        list(corpora.open_source(folder).documents())


@pytest.mark.parametrize("file", ["termweave-shards.json", "shard-000001.parquet", "sample.parquet", "statistics.bin"])
def test_a_pipe_in_the_place_of_a_file_is_refused_without_waiting(write, encode, tmp_path, file):
    folder, path = tmp_path / "shards", write(texts(30))
    encode(path, folder)
    (folder / file).unlink()
    os.mkfifo(folder / file)
    ended = subprocess.run([sys.executable, "-c", READING, str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{file} in {folder} is not a file." in ended.stdout


READING = """
import sys
from termweave.errors import TermweaveError
from termweave.indexer.shards.source import EncodedFolder
try:
    folder = EncodedFolder.open(sys.argv[1], None)
    folder.encodings
    list(folder.documents())
except TermweaveError as error:
    print(error)
"""


def test_an_address_is_shown_without_its_password(encode, tmp_path):
    assert "https://me:***@old:9200/products is an index" in encode(
        "https://me:secret@old:9200/products", tmp_path / "shards", status=2
    )


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
    folder = tmp_path / "shards"
    encode(write(texts(40)), folder)
    for number in (0, 2):
        (folder / f"shard-00000{number}.parquet").unlink()
    with pytest.raises(Exception, match=r"lacks 2 shards of 3 \(shard-000000.parquet, shard-000002.parquet\)"):
        corpora.open_source(folder)
    (folder / MANIFEST).write_text("{}")
    with pytest.raises(Exception, match="is damaged"):
        corpora.open_source(folder)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("s3://bucket/folder", True),
        ("simplecache::s3://bucket/folder", True),
        ("memory://folder", True),
        ("https://host/index", False),
        ("ubi:http://127.0.0.1:9200", False),
        ("opensearch:https://host", False),
        ("folder/with:colon", False),
    ],
)
def test_only_urls_of_file_systems_are_folders_elsewhere(spec, expected):
    assert is_url(spec) == expected


def test_readers_of_shards_hold_one_block(write, encode, tmp_path):
    encode(write(texts(160)), tmp_path / "shards")
    gc.collect()
    before = sum(issubclass(type(each), Document) for each in gc.get_objects())
    documents = corpora.open_source(tmp_path / "shards").documents()
    for _ in range(100):
        next(documents)
    gc.collect()
    held = sum(issubclass(type(each), Document) for each in gc.get_objects()) - before
    assert held <= 16  # with and without their encodings


def test_reading_a_shard_imports_no_pandas(write, encode, tmp_path):
    """Pandas takes 40 MB and half a second, and is imported by Arrow's own conversion to NumPy."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    encode(write(texts(20)), tmp_path / "shards")
    code = (
        "import sys; from termweave import corpora; folder = corpora.open_source(sys.argv[1]); "
        "print(len(list(folder.documents())), 'pandas' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "shards")], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["20", "False"], ended.stderr
