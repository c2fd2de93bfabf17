"""Metadata of every reader on a real OpenSearch: it is stored as it was read, and can be filtered on."""

import json
from datetime import UTC, date, datetime

import pytest

from termweave import corpora
from termweave.cli import run
from termweave.indexer import BuildOptions, build, verify_against_source
from termweave.search import Index
from tests.corpora.files import make

LEXICAL = BuildOptions(weights="none", dense="none")

RECORDS = [
    {"id": "a", "text": "green tea", "year": 2020, "price": 1.5, "fresh": True, "day": date(2020, 1, 2), "tags": ["x", "y"],
     "from": {"country": {"code": "JP"}}, "my note": "a b", "none": None, "seen": datetime(2020, 1, 2, 3, 4, tzinfo=UTC)},
    {"id": "b", "text": "black tea", "year": 2021, "price": -2.0, "fresh": False, "day": date(2021, 5, 6), "tags": [],
     "from": {"country": {"code": "IN"}}, "my note": "c", "none": None, "seen": datetime(2021, 5, 6, tzinfo=UTC)},
]  # fmt: skip


def jsonl(folder):
    lines = "".join(json.dumps(each, default=lambda value: value.isoformat()) + "\n" for each in RECORDS)
    return make(folder, {"tea.jsonl": lines}) / "tea.jsonl"


def csv(folder):
    plain = [{key: value for key, value in each.items() if key not in {"tags", "from", "none"}} for each in RECORDS]
    rows = [[value.isoformat() if isinstance(value, date) else str(value).lower() for value in each.values()] for each in plain]
    return make(folder, {"tea.csv": "".join(",".join(row) + "\n" for row in [list(plain[0]), *rows])}) / "tea.csv"


def parquet(folder):
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "tea.parquet")
    return folder / "tea.parquet"


FLAT = [
    ({"term": {"metadata.year": "2020"}}, ["a"]),
    ({"term": {"metadata.price": "1.5"}}, ["a"]),
    ({"term": {"metadata.fresh": "true"}}, ["a"]),
    ({"range": {"metadata.day": {"lt": "2021"}}}, ["a"]),
    ({"term": {"metadata.seen": "2020-01-02T03:04:00+00:00"}}, ["a"]),
    ({"term": {"metadata.my note": "a b"}}, ["a"]),
]
NESTED = [
    ({"term": {"metadata.tags": "y"}}, ["a"]),
    ({"term": {"metadata.from.country.code": "IN"}}, ["b"]),
    ({"exists": {"field": "metadata.none"}}, []),
]


@pytest.mark.parametrize(("make", "filters"), [(jsonl, FLAT + NESTED), (csv, FLAT), (parquet, FLAT + NESTED)])
def test_what_every_reader_gives_can_be_filtered_on(opensearch_engine, name, tmp_path, make, filters):
    source = corpora.open_source(make(tmp_path))
    build(opensearch_engine, source, name, LEXICAL)
    index = Index.open(opensearch_engine, name, weights="none", dense="none")
    for where, expected in filters:
        assert [hit.id for hit in index.search("tea", where=[where])] == expected, where
    stored = {hit.id: hit.fields["metadata"] for hit in index.search("tea")}
    assert stored == {each.id: dict(each.metadata) for each in source.documents()}
    assert verify_against_source(opensearch_engine, index.generation, source, deep=True).ok


def test_the_id_and_an_entry_of_the_metadata_called_so_are_two_things_to_filter_by(opensearch_engine, name, tmp_path, capsys):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"_id": "1", "text": "tea", "metadata": {"id": "2"}}\n{"_id": "2", "text": "tea", "id": "1"}\n')
    build(opensearch_engine, corpora.open_source(path), name, LEXICAL)

    def found(condition):
        assert run(["search", name, "tea", "--filter", condition, "--json", "--url", opensearch_engine.url]) == 0
        return [hit["id"] for hit in json.loads(capsys.readouterr().out)["hits"]]

    assert found("id=1") == ["1"]
    assert found("metadata.id=1") == ["2"]
    assert found("metadata.id=2") == ["1"]


def test_how_many_there_are_is_told_by_the_bytes_read(opensearch_engine, name, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f'{{"id": "{number}", "text": "{"word " * 400}"}}\n' for number in range(2000)))
    told = []
    build(opensearch_engine, corpora.open_source(path), name, LEXICAL, lambda *now: told.append(now))
    reading = [(done, total) for stage, done, total, *_ in told if stage == "Reading"]
    assert reading[-1] == (2000, 2000)
    assert all(done < total == pytest.approx(2000, rel=0.5) for done, total in reading[:-1])


def test_columns_are_named_on_the_command_line_and_what_was_left_out_is_said(opensearch_engine, name, tmp_path, capsys):
    path = tmp_path / "products.csv"
    path.write_text("sku,label,about,colour\n1,Tea,green leaves,green\n2,broken\n3,Coffee,brown beans,brown\n")
    columns = ["--id-field", "sku", "--title-field", "label", "--text-field", "about"]
    models = ["--weights", "none", "--dense", "none", "--url", opensearch_engine.url]
    assert run(["index", str(path), name, *columns, *models]) == 1
    assert f"{path}, line 3: 2 cells where 4 should be.\nCorrect the entry, or skip such entries" in capsys.readouterr().err
    assert run(["index", str(path), name, *columns, *models, "--skip-bad", "--json"]) == 0
    said = capsys.readouterr()
    notes = json.loads(said.out)["notes"]
    assert "commas between columns, quoting; id = 'sku'; title = 'label'; text = 'about'; metadata = 'colour'" in notes[0]
    assert notes[0] in said.err
    assert f"1 entry could not be read and left out ({path}, line 3: 2 cells where 4 should be)." in notes
    assert run(["verify", name, str(path), *columns, "--skip-bad", "--url", opensearch_engine.url]) == 0
    for other in (columns[:-2], columns[2:]):  # another text, other ids
        assert run(["verify", name, str(path), *other, "--skip-bad", "--url", opensearch_engine.url]) == 4
        assert "No document is the same: give --id-field" in capsys.readouterr().err
