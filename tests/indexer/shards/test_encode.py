"""`termweave encode`: the same bytes however many processes write them, exact statistics, resuming, refusals."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave import corpora, encoders
from termweave.errors import InputError
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.preparation.corpus_pass import read_corpus
from termweave.indexer.shards import manifest, rows
from termweave.indexer.shards.source import EncodedFolder
from termweave.indexer.shards.store import MANIFEST, ShardStore, is_url
from termweave.records import Document

from .conftest import texts

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "encode-shards.1.json").read_text())


def files(folder, beginning):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(beginning)}


def one_pass(path, tmp_path, **options):
    """The statistics and the sample of one pass over the corpus, as a build counts them."""
    source = corpora.open_source(path, **options)
    with Ledger(tmp_path / "one.sqlite") as ledger:
        return read_corpus(
            source, encoders.load(weights="bm25-german", dense="none"), ledger, skip_bad=bool(options), progress=lambda *_: None
        )


def test_shards_have_the_same_bytes_in_one_process_and_in_four(write, encode, tmp_path, monkeypatch):
    monkeypatch.undo()  # processes of their own have usual blocks
    path = write(texts(2_000))
    said = encode(path, f"file://{tmp_path}/four", "--shards", "4", "--processes", "4")
    jsonschema.validate(said, SCHEMA)
    assert (said["texts"], said["finished"], said["encoded"]) == (2_000, 4, {"shards": 4, "texts": 2_000})
    for shard in "2031":
        encode(path, f"file://{tmp_path}/one", "--shards", "4", "--shard", shard)  # a URL, which fsspec opens
    assert files(tmp_path / "four", "") == files(tmp_path / "one", "")
    assert [path.name for path in (tmp_path / "one").iterdir() if path.name.startswith(".")] == []


def test_statistics_and_sample_are_those_of_one_pass(write, encode, in_process, tmp_path):
    documents = texts(700)
    documents[300] = documents[5]  # the same document again: counted once
    path = write(documents)
    said = encode(path, tmp_path / "shards", "--shards", "5")
    corpus = one_pass(path, tmp_path)
    assert said["statistics"] == corpus.statistics.hash
    assert said["texts"] == 699
    assert said["notes"][1:] == ["1 document left out, with the id and content of an earlier document."]
    _, counted = manifest.read(ShardStore(str(tmp_path / "shards")))
    assert counted.sample == [(document.id, document.line) for document in corpus.sample]


def test_the_second_document_with_an_id_is_refused_or_left_out_as_in_a_build(write, encode, in_process, tmp_path):
    documents = texts(40)
    documents[33] = {**documents[2], "text": "etwas anderes"}
    path = write(documents)
    said = encode(path, tmp_path / "s", "--shards", "3", status=1)
    assert "corpus.jsonl: line 34 has the id 'd2' of line 3, with other content" in said
    assert "--skip-bad" in said
    assert "skip_bad was off and is on" in encode(path, tmp_path / "s", "--shards", "3", "--skip-bad", status=2)
    said = encode(path, tmp_path / "t", "--shards", "3", "--skip-bad")
    assert said["texts"] == 39
    assert said["statistics"] == one_pass(path, tmp_path, skip_bad=True).statistics.hash
    assert "left out, because an earlier document with other content has the same id" in said["warnings"][0]


def test_entries_that_cannot_be_read_are_named(write, encode, in_process, tmp_path):
    path = write(texts(20))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    assert "corpus.jsonl" in encode(path, tmp_path / "s", "--shards", "2", status=1)
    said = encode(path, tmp_path / "t", "--shards", "2", "--skip-bad")
    assert said["texts"] == 20
    assert any("1 entry could not be read" in note for note in said["notes"])


def test_finished_shards_are_not_encoded_again(write, encode, in_process, tmp_path):
    path, folder = write(texts(64)), tmp_path / "shards"
    encode(path, folder, "--shards", "4")
    whole = files(folder, "")
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "shard-00002.parquet").unlink()
    said = encode(path, folder, "--shards", "4")
    assert said["encoded"] == {"shards": 1, "texts": 16}
    assert files(folder, "") == whole
    changed = {path.name for path in folder.iterdir() if times[path.name] != path.stat().st_mtime_ns}
    assert changed == {"shard-00002.parquet", "sample-00002.parquet"}


def test_another_corpus_or_option_is_refused(write, encode, in_process, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(20)), folder, "--shards", "2")
    said = encode(write(texts(20)), folder, "--shards", "3", status=2)
    assert "has shards of another corpus, model or option: shards was 2 and is 3" in said
    said = encode(write(texts(21), "other.jsonl"), folder, "--shards", "2", status=2)
    assert "source was corpus.jsonl (" in said
    assert "is other.jsonl (" in said
    said = encode(write(texts(20)), folder, "--shards", "2", "--weights", "bm25-dutch", status=2)
    assert "models was weights bm25-german" in said


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("-", (), "cannot read standard input"),
        ("opensearch:products", (), "is an index, which may change"),
        ("https://example.org/a.jsonl", (), "would be fetched by every process"),
        ("corpus.jsonl", ("--weights", "none"), "Without a model there is nothing to encode"),
        ("corpus.jsonl", ("--shard", "2", "--shards", "2"), "--shard is a number from 0 to 1"),
        ("corpus.jsonl", ("--shard", "0", "--on", "ray"), "leave out --processes and --on"),
    ],
)
def test_what_cannot_be_encoded_is_refused(write, encode, tmp_path, monkeypatch, source, options, said):
    write(texts(3))
    monkeypatch.chdir(tmp_path)
    assert said in encode(source, tmp_path / "shards", *options, status=2)


@pytest.mark.parametrize("change", [{"shards": 0}, {"shards": "2"}, {"block": -1}, {"models": []}, {"source": "x"}], ids=str)
def test_a_manifest_that_was_edited_is_damaged(write, encode, in_process, tmp_path, change):
    folder = tmp_path / "shards"
    encode(write(texts(9)), folder, "--shards", "2")
    manifest = json.loads((folder / "termweave-shards.json").read_text())
    manifest["plan"] |= change
    (folder / "termweave-shards.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"termweave-shards.json in .* is damaged"):
        corpora.open_source(folder)


def test_files_of_shards_without_a_manifest_are_refused(write, encode, in_process, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(20)), folder, "--shards", "2")
    (folder / "termweave-shards.json").unlink()
    for left_out in ("shard-*", "sample-*", "entries-*"):  # counts alone would be taken for those of another corpus
        said = encode(write(texts(20, seed=1), "other.jsonl"), folder, "--shards", "2", status=2)
        assert "has files of shards, such as" in said
        for path in folder.glob(left_out):
            path.unlink()
    (folder / "notes.txt").write_text("no file of a shard")
    for path in folder.glob("counts-*"):
        path.unlink()
    assert encode(write(texts(20, seed=1), "other.jsonl"), folder, "--shards", "2")["finished"] == 2


def test_a_folder_whose_name_has_colons_is_a_folder(write, encode, in_process, tmp_path):
    encode(write(texts(9)), tmp_path / "a::b", "--shards", "2")
    assert not (tmp_path / "a").exists()
    assert len(list(corpora.open_source(tmp_path / "a::b").documents())) == 9


def test_an_empty_name_is_no_folder(write, encode, tmp_path, monkeypatch):
    path = write(texts(3))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "--out names no folder" in encode(path, "", status=2)
    assert not list((tmp_path / "here").iterdir())


def test_a_folder_of_shards_is_not_encoded_again(write, encode, in_process, tmp_path):
    encode(write(texts(3)), tmp_path / "shards", "--shards", "1")
    assert "it is encoded already" in encode(tmp_path / "shards", tmp_path / "again", status=2)


def test_a_url_of_fsspec_holds_the_same_shards(write, encode, in_process, tmp_path):
    import fsspec

    path, url = write(texts(50)), f"memory://{tmp_path.name}/shards"
    encode(path, tmp_path / "shards", "--shards", "3")
    encode(path, url, "--shards", "3")
    memory = fsspec.filesystem("memory")
    there = {name.rpartition("/")[2]: memory.cat_file(name) for name in memory.ls(f"/{tmp_path.name}/shards", detail=False)}
    assert there == files(tmp_path / "shards", "")
    assert len(list(corpora.open_source(url).documents())) == 50


def test_a_scheme_without_a_file_system_is_named(write, encode, tmp_path):
    said = encode(write(texts(3)), "nonsense://bucket/shards", status=2)
    assert "nonsense://bucket/shards cannot be opened" in said


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("pyarrow.parquet", (), "Shards are Parquet files, and pyarrow is not installed"),
        ("fsspec", (), "Shards are Parquet files, and fsspec is not installed"),
        ("ray", ("--on", "ray"), "Ray is not installed"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(write, encode, tmp_path, monkeypatch, module, options, said):
    monkeypatch.setitem(sys.modules, module, None)
    told = encode(write(texts(3)), tmp_path / "shards", *options, status=2)
    assert said in told
    assert "pip install" in told


def test_a_damaged_shard_is_named(write, encode, in_process, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(30)), folder, "--shards", "2")
    shard = folder / "shard-00001.parquet"
    content = bytearray(shard.read_bytes())
    content[200] ^= 255
    shard.write_bytes(content)
    with pytest.raises(Exception, match=r"shard-00001\.parquet in .* (cannot be read|is damaged)"):
        list(corpora.open_source(folder).documents())
    shard.write_bytes(content[:50])
    with pytest.raises(Exception, match=r"shard-00001\.parquet in .* cannot be read"):
        list(corpora.open_source(folder).documents())


def test_a_text_that_was_altered_is_named(write, encode, in_process, tmp_path):
    """Somebody rewrites a shard with another text: the checksums of the pages are right, the digest is not."""
    import pyarrow.parquet as pq

    folder = tmp_path / "shards"
    encode(write(texts(10)), folder, "--shards", "1")
    shard = folder / "shard-00000.parquet"
    table = pq.read_table(shard)
    titles = table.column("title").to_pylist()
    titles[3] = "Ein anderer Titel"
    pq.write_table(table.set_column(table.column_names.index("title"), table.schema.field("title"), [titles]), shard)
    with pytest.raises(Exception, match="is damaged: the text 'd3' is another than was encoded"):
        list(corpora.open_source(folder).documents())


def test_a_shard_of_another_number_model_or_length_is_named(write, encode, in_process, tmp_path):
    """A file in the place of another one is whole and has right digests; its documents would be there twice, others not at all."""
    import pyarrow.parquet as pq

    folder, other, path = tmp_path / "shards", tmp_path / "other", write(texts(64))
    encode(path, folder, "--shards", "2")
    encode(path, other, "--shards", "2", "--weights", "bm25-dutch")
    shard = folder / "shard-00001.parquet"
    own = shard.read_bytes()
    for wrong in (folder / "shard-00000.parquet", other / "shard-00001.parquet"):
        shard.write_bytes(wrong.read_bytes())
        with pytest.raises(Exception, match=r"shard-00001\.parquet in .* is another shard, or one of another folder"):
            list(corpora.open_source(folder).documents())
    shard.write_bytes(own)
    whole = pq.ParquetFile(folder / "shard-00001.parquet").read_row_group(0)
    pq.write_table(whole, shard)
    with pytest.raises(Exception, match="hold 24 texts, and 64 were encoded: one is cut off"):
        list(corpora.open_source(folder).documents())


def test_a_file_beside_a_shard_is_written_again(write, encode, in_process, tmp_path):
    path, folder = write(texts(64)), tmp_path / "shards"
    encode(path, folder, "--shards", "2")
    whole = files(folder, "")
    (folder / "sample-00001.parquet").unlink()
    assert encode(path, folder, "--shards", "2")["encoded"]["shards"] == 1
    assert files(folder, "") == whole


def test_an_address_is_shown_without_its_password(encode, tmp_path):
    assert "https://me:***@old:9200/products is an index" in encode(
        "https://me:secret@old:9200/products", tmp_path / "shards", status=2
    )


def test_more_shards_than_a_process_may_have_open_files(write, encode, tmp_path, monkeypatch):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    path, usual = write(texts(20)), resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= usual[1] < 700:
        pytest.skip("this system allows fewer")
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, usual[1]))
    try:
        assert encode(path, tmp_path / "shards", "--shards", "400", "--shard", "0")["texts"] == 20
        with monkeypatch.context() as strict:
            strict.setattr(resource, "getrlimit", lambda _: (256, 256))
            strict.setattr(resource, "setrlimit", lambda *_: (_ for _ in ()).throw(ValueError("not allowed")))
            said = encode(path, tmp_path / "refused", "--shards", "400", "--shard", "0", status=2)
        assert "shards need as many open files, and this system allows a process 256." in said
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


class Strange(Exception):
    """An error of a driver that is none of the system's."""


def test_an_error_of_a_file_system_is_a_sentence(write, encode, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def refused(*_, **__):
        raise Strange("no credentials")

    path = write(texts(3))
    with monkeypatch.context() as there:
        there.setattr(MemoryFileSystem, "exists", refused)
        assert "termweave-shards.json in memory://refusing/a cannot be read: no credentials" in encode(
            path, "memory://refusing/a", status=1
        )
    monkeypatch.setattr(MemoryFileSystem, "mv", refused)
    assert "cannot be written to memory://refusing/b: no credentials" in encode(path, "memory://refusing/b", status=1)
    monkeypatch.setattr(MemoryFileSystem, "__init__", refused)
    MemoryFileSystem.clear_instance_cache()
    said = encode(path, "memory://me:secret@refusing/c", status=2)
    assert "memory://me:***@refusing/c cannot be opened: Strange" in said


def test_missing_shards_are_named(write, encode, in_process, tmp_path):
    folder = tmp_path / "shards"
    encode(write(texts(30)), folder, "--shards", "3", "--shard", "1")
    with pytest.raises(Exception, match=r"lacks 2 shards of 3 \(00000, 00002\)"):
        corpora.open_source(folder)
    (folder / MANIFEST).write_text("{}")
    with pytest.raises(Exception, match="is damaged"):
        corpora.open_source(folder)


def test_a_shard_without_a_document_keeps_the_order(write, encode, in_process, tmp_path):
    """More shards than blocks, and a block whose documents are all left out."""
    documents = texts(20)
    documents[8:16] = documents[:8]
    encode(write(documents), tmp_path / "shards", "--shards", "6")
    read = [document.id for document in corpora.open_source(tmp_path / "shards").documents()]
    assert read == [f"d{number}" for number in (*range(8), *range(16, 20))]
    shard = rows.ShardFile(ShardStore(str(tmp_path / "shards")), "shard-00001.parquet")
    assert list(shard.documents(encoded=True)) == [[]]


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


def test_readers_of_many_shards_hold_one_block(write, encode, in_process, tmp_path):
    encode(write(texts(160)), tmp_path / "shards", "--shards", "10")
    folder = EncodedFolder(str(tmp_path / "shards"))
    gc.collect()
    before = sum(issubclass(type(each), Document) for each in gc.get_objects())
    blocks = rows.in_order([folder.shard(number).documents(encoded=True) for number in range(10)])
    for _ in range(12):
        block = next(blocks)
    gc.collect()
    assert len(block) == 8
    assert sum(issubclass(type(each), Document) for each in gc.get_objects()) == before + 8


def test_reading_a_shard_imports_no_pandas(write, encode, in_process, tmp_path):
    """Pandas takes 40 MB and half a second, and is imported by Arrow's own conversion to NumPy."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    encode(write(texts(20)), tmp_path / "shards", "--shards", "2")
    code = (
        "import sys; from termweave import corpora; folder = corpora.open_source(sys.argv[1]); "
        "print(len(list(folder.encoded().documents())), 'pandas' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "shards")], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["20", "False"], ended.stderr
