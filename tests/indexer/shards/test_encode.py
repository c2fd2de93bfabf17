"""`termweave encode`: the same bytes wherever the folder is, resuming, proof of what is read, refusals; its index is that of the corpus."""

import json
from dataclasses import replace
from pathlib import Path

import fsspec
import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from termweave import corpora
from termweave.catalog import statistics_store
from termweave.contracts.signal import Pruning
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.indexer import BuildOptions, build, update, verify_against_source
from termweave.indexer.job import Job
from termweave.indexer.options import Window
from termweave.indexer.shards.store import MANIFEST, is_url
from termweave.search import Index
from tests.indexer.builds import check, sources
from tests.indexer.conftest import stopping

from .conftest import texts


def files(folder, beginning=""):
    """Name -> content of the files whose names have this beginning, without the lock."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith(beginning) and path.name != ".lock"}


def count_of(folder):
    return len(list(corpora.open_source(folder).documents()))


def test_the_folder_may_be_a_url_and_is_private(write, encode, tmp_path):
    path, url = write(texts(200)), f"memory://{tmp_path.name}/shards"
    said = encode(path, f"file://{tmp_path}/url")
    schema = Path(__file__).parents[3] / "docs" / "schemas" / "encode-shards.1.json"
    jsonschema.validate(said, json.loads(schema.read_text()))
    assert (said["texts"], said["shards"], said["encoded"]) == (200, 13, {"shards": 13, "texts": 200})
    encode(path, tmp_path / "a::b")  # which is no URL
    encode(path, url)
    memory = fsspec.filesystem("memory")
    there = {name.rpartition("/")[2]: memory.cat_file(name) for name in memory.ls(f"/{tmp_path.name}/shards", detail=False)}
    assert files(tmp_path / "url") == files(tmp_path / "a::b") == there
    assert {name[:6] for name in there} == {"shard-", "sample", "statis", "termwe"}
    assert count_of(url) == 200
    assert not [path for path in (tmp_path / "a::b", *(tmp_path / "a::b").glob("*.parquet")) if path.stat().st_mode & 0o077]


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
    assert said["texts"] == 39
    assert "left out, because an earlier document with other content has the same id" in said["warnings"][0]
    assert any("1 entry could not be read" in note for note in said["notes"])
    assert "skip_bad was on and is off" in encode(write(texts(40)), tmp_path / "s", status=2)


def test_finished_shards_are_not_encoded_again(write, encode, tmp_path):
    path, folder = write(texts(64)), tmp_path / "shards"
    encode(path, folder)
    whole = files(folder)
    times = {each: each.stat().st_mtime_ns for each in folder.glob("shard-*")}
    (folder / "shard-000002.parquet").unlink()  # because it is damaged, say: its texts are read from the corpus again
    assert encode(path, folder)["encoded"] == {"shards": 1, "texts": 16}
    assert files(folder) == whole
    assert sum(time != each.stat().st_mtime_ns for each, time in times.items()) == 1
    (folder / "sample.parquet").unlink()
    assert encode(path, folder)["encoded"] == {"shards": 0, "texts": 0}
    assert files(folder) == whole


def test_another_corpus_or_option_is_refused_and_files_without_a_manifest(write, encode, tmp_path):
    folder, path, other = tmp_path / "shards", write(texts(20)), write(texts(21), "other.jsonl")
    encode(path, folder)
    for source, options, said in (
        (path, ("--passage-size", "40"), "another corpus, model or option: passages was none and is {'size': 40"),
        (other, (), "is that of other.jsonl ("),
        (path, ("--weights", "bm25-dutch"), "models was weights bm25-german"),
    ):
        assert said in encode(source, folder, *options, status=2)
    (folder / MANIFEST).unlink()
    assert "has files of shards, such as shard-000000.parquet" in encode(other, folder, status=2)


@pytest.mark.parametrize(
    ("source", "folder", "options", "said"),
    [
        ("https://me:secret@old:9200/products", "new", (), "https://me:***@old:9200/products is an index, which changes"),
        ("corpus.jsonl", "new", ("--weights", "none"), "There is no model, or none that knows the language of corpus"),
        ("corpus.jsonl", "", (), "--out names no folder"),
        ("corpus.jsonl", "nonsense://me:secret@bucket/shards", (), "nonsense://me:***@bucket/shards cannot be opened"),
        ("shards", "new", (), "is encoded already, and it need not be encoded again"),
    ],
)
def test_what_cannot_be_encoded_is_refused(write, encode, tmp_path, monkeypatch, source, folder, options, said):
    monkeypatch.chdir(tmp_path)
    encode(write(texts(3)), "shards")
    assert said in encode(source, folder, *options, status=2)
    assert {path.name for path in tmp_path.iterdir()} <= {"corpus.jsonl", "shards", "new"}


def test_a_manifest_that_was_edited_is_damaged(write, encode, tmp_path):
    encode(write(texts(9)), tmp_path / "shards")
    manifest = tmp_path / "shards" / MANIFEST
    whole = json.loads(manifest.read_text())
    dense = {"name": "x", "hash": "y", "dimension": 10**9, "analysis": None, "max_length": 5}
    said = r"(termweave-shards.json in .* is damaged|has shards of format|has other columns|lacks)"
    for change in (
        {"shards": 0}, {"shards": "2"}, {"texts": 10**30}, {"models": []}, {"source": 5}, {"notes": "x"}, {"passages": {"size": 10**9}},
        {"statistics": None}, {"format": "2"}, {"models": {"dense": dense}},
    ):  # fmt: skip
        manifest.write_text(json.dumps(whole | change))
        with pytest.raises(InputError, match=said):
            assert corpora.open_source(tmp_path / "shards").encodings, change


def test_a_text_or_an_encoding_that_was_altered_is_refused(write, encode, tmp_path):
    """Somebody rewrites a shard: the checksums of its pages are right, the digests are not."""
    documents = [{"_id": f"d{number}", "text": f"The kettle number {number} is cleaned with vinegar."} for number in range(10)]
    encode(write(documents), tmp_path / "shards", quick=False)
    shard = tmp_path / "shards" / "shard-000000.parquet"
    table, altered, empty = pq.read_table(shard), "not what was encoded", "a field is empty"
    for column, change, reason in (
        ("title", lambda values: ["Ein anderer Titel", *values[1:]], altered),
        ("vector", lambda values: values[::-1], altered),
        ("digest", lambda values: values[::-1], altered),
        ("weights", lambda values: [[float("nan") for _ in row] for row in values], altered),
        ("terms", lambda values: [[row[0]] * len(row) for row in values], altered),
        ("id", lambda values: [None, *values[1:]], empty),
        ("metadata", lambda values: ["{", *values[1:]], empty),
    ):
        field = table.schema.field(column)
        values = pa.array(change(table.column(column).to_pylist()), field.type)
        pq.write_table(table.set_column(table.column_names.index(column), field, values), shard)
        with pytest.raises(InputError, match=rf"shard-000000.parquet in .* is damaged: .*{reason}"):
            count_of(tmp_path / "shards")


def test_a_shard_that_is_damaged_or_of_another_number_model_or_length_is_named(write, encode, tmp_path):
    """A file in the place of another one is whole; its documents would be there twice, others not at all."""
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
        (rows, "hold 56 texts, and 64 were encoded: a shard is cut off"),
        (rows.drop_columns(["digest"]), "has other columns"),
    ):
        pq.write_table(table, shard)
        with pytest.raises(InputError, match=reason):
            count_of(folder)
    (folder / "shard-000003.parquet").unlink()
    with pytest.raises(InputError, match=r"lacks 1 shard of 4 \(shard-000003.parquet\)"):
        count_of(folder)


@pytest.mark.parametrize(("method", "said"), [("ls", "in memory://ls cannot be read"), ("mv", "be written to memory://mv")])
def test_an_error_of_a_file_system_is_a_sentence(write, encode, monkeypatch, method, said):
    def refused(*_, **__):
        raise RuntimeError("no credentials")  # a driver has errors that are none of the system's

    monkeypatch.setattr(MemoryFileSystem, method, refused)
    assert f"{said}: no credentials" in encode(write(texts(3)), f"memory://{method}", status=1)


def test_only_urls_of_file_systems_are_folders_elsewhere():
    folders = ["s3://bucket/folder", "simplecache::s3://bucket/folder", "memory://folder"]
    others = ["https://host/index", "ubi:http://127.0.0.1:9200", "opensearch:https://host", "folder/with:colon"]
    assert [spec for spec in (*folders, *others) if is_url(spec)] == folders


BM25 = {"weights": "bm25-german", "dense": "none"}


@pytest.fixture
def same(opensearch_engine, name, encode, tmp_path):
    """A function that builds the indices NAME-a of a corpus and NAME-b of its shards, compares all of them, and returns the build of shards."""

    def check_same(path, options, queries, *words, quick=True, of_shards=None):
        encode(path, tmp_path / "shards", *words, quick=quick)
        build(opensearch_engine, corpora.open_source(path), f"{name}-a", options)
        built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), f"{name}-b", of_shards or BuildOptions())
        direct, shards = (Index.open(opensearch_engine, f"{name}-{each}") for each in "ab")
        origin = {**direct.lineage.source, "options": shards.lineage.source["options"]}  # those of shards name no models
        assert replace(direct.lineage, name=f"{name}-b", created=shards.lineage.created, source=origin) == shards.lineage
        if direct.lineage.statistics:
            first, second = (statistics_store.load(opensearch_engine, each.generation, each.lineage) for each in (direct, shards))
            assert first.to_bytes() == second.to_bytes()
        assert sources(opensearch_engine, f"{name}-a") == sources(opensearch_engine, f"{name}-b")
        first, second = (each.run(queries, k=1_000).scores for each in (direct, shards))
        assert any(first.values())
        # compiled code adds in another order
        assert second == {query: pytest.approx(scores, rel=1e-5) for query, scores in first.items()}
        source = corpora.open_source(tmp_path / "shards")
        assert verify_against_source(opensearch_engine, direct.generation, source).ok
        assert check(opensearch_engine, f"{name}-b").ok
        return built

    return check_same


QUERIES = {"a": "haus im garten", "b": "wolke regen", "c": "stern"}


def test_same_documents_and_scores_with_the_shipped_model_and_pruning(write, same):
    documents = [{"_id": f"d{each}", "text": f"Green tea {each} steeps for {each} minutes.", "n": each} for each in range(40)]
    options = BuildOptions(analyzer="standard", prune=Pruning(below=0.3))
    built = same(write(documents), options, {"q": "green tea", "r": "minutes 7"}, quick=False, of_shards=options)
    assert (built.documents, built.sent) == (40, 40)


def test_same_with_passages_duplicates_long_texts_and_metadata(write, same):
    """More texts than the sample takes, some of which are longer than it keeps."""
    documents = texts(600)
    for number in range(0, 600, 60):
        documents[number]["text"] = " ".join(f"wort{number}x{each} {documents[number]['text']}" for each in range(150))
    documents[400] = documents[3]
    documents[10]["text"] = ""
    built = same(write(documents), BuildOptions(**BM25), QUERIES)
    assert "1 document left out, with the id and content of an earlier document." in built.notes


def test_same_passages(write, same):
    documents = texts(60)
    documents[7]["text"] = ". ".join(each["text"].capitalize() for each in documents[:20]) + "."
    built = same(write(documents), BuildOptions(**BM25, passages=Window(50, 37)), QUERIES, "--passage-size", "50")
    assert built.passages > built.documents == 60


def test_a_build_of_the_corpus_is_resumed_from_its_shards(opensearch_engine, name, write, encode, tmp_path):
    """Both are the same build: what the one has sent, the other does not send again."""
    path = write(texts(80))
    encode(path, tmp_path / "shards")
    with stopping(Job, "_verify"), pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, corpora.open_source(path), name, BuildOptions(**BM25))
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert (built.documents, built.sent) == (80, 0)


def test_what_shards_do_not_give_is_refused(opensearch_engine, name, write, encode, tmp_path, shell):
    encode(write(texts(10)), tmp_path / "shards")
    shards = corpora.open_source(tmp_path / "shards")
    for options, said in (
        ({"passages": Window(60, 40)}, "was encoded as whole documents"),
        ({"weights": "bm25-dutch"}, r"was encoded with 'bm25-german' .*weights names 'bm25-dutch'"),
        ({"dense": "shipped"}, "was encoded without such a model, and dense names"),
        ({"signals": ("dense",)}, "'dense' cannot be built: no model gives 'dense'"),
    ):
        with pytest.raises(UsageError, match=said):
            build(opensearch_engine, shards, name, BuildOptions(**options))
    build(opensearch_engine, shards, name, BuildOptions(weights="none", signals=("lexical",)))
    with pytest.raises(TermweaveError, match="is encoded already, and an update weighs documents with the statistics"):
        update(opensearch_engine, shards, name, BuildOptions())
    assert "a plan estimates how long encoding takes" in shell("index", tmp_path / "shards", name, "--plan", status=2).err
