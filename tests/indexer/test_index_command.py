"""What `index`, `verify` and `delete` say on a real OpenSearch: sentences that are true and name the next step."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import orjson
import pytest

from termweave.catalog import statistics_store
from termweave.catalog.generations import live
from termweave.cli import run
from termweave.indexer import builder
from termweave.indexer.generations import listing, publication
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage

from .builds import numbered
from .conftest import stopping

pytestmark = pytest.mark.engine
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def documents(engine, name):
    return engine.request("GET", f"/{name}/_count")["count"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--update", "--yes"], "--yes belongs to --update --delete-missing"),
        (["--on", "./nfcorpus"], "--on names the queries of a gate"),
        (["--new"], "belong to --update"),
        (["--fresh", "--update"], "leave out --fresh or --update"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(tmp_path, capsys, arguments, said):
    assert run(["index", str(tmp_path), "docs", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_is_being_built_is_not_deleted(opensearch_engine, name, index, capsys):
    index(numbered(3))
    with storage.lease(opensearch_engine, name):
        assert run(["delete", name, "--yes", "--url", opensearch_engine.url]) == 1
        assert f"Another build of '{name}' is running on this host" in capsys.readouterr().err
    assert len(listing.list_generations(opensearch_engine, name)) == 1
    assert run(["delete", name, "--yes", "--url", opensearch_engine.url]) == 0
    assert live(opensearch_engine, name) is None


def test_statistics_that_somebody_deleted_are_missed_though_this_host_has_a_copy(
    opensearch_engine, name, index, tmp_path, capsys, monkeypatch
):
    index(numbered(3), "--weights", "shipped")
    url = ["--url", opensearch_engine.url]
    assert run(["verify", name, *url]) == 0
    capsys.readouterr()
    companion = statistics_store.companion(live(opensearch_engine, name))
    opensearch_engine.request("DELETE", f"/{companion}")
    assert run(["verify", name, "--json", *url]) == 4
    told, said = capsys.readouterr()
    told = orjson.loads(told)
    assert (told["ok"], told["lost"], told["missing"]) == (False, companion, [])
    assert f"{companion}, the index with the statistics of the weights, was deleted" in said
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "elsewhere")
    assert run(["search", name, "x", *url]) == 1
    assert "queries cannot be weighted without them" in capsys.readouterr().err


def test_a_block_that_keeps_documents_from_being_deleted_is_named_with_what_takes_it_away(opensearch_engine, name, index, capsys):
    index(numbered(3))
    opensearch_engine.request("PUT", f"/{name}/_settings", body={"index.blocks.write": True})
    assert run(["delete", name, "--id", "d1", "--yes", "--url", opensearch_engine.url]) == 1
    assert '"index.blocks.write": null} takes it away. Run the command again' in capsys.readouterr().err


def test_a_copy_has_its_own_time_and_rollback_finds_the_way_back(opensearch_engine, name, index):
    index(numbered(3))
    before = live(opensearch_engine, name)
    index(numbered(4), "--update", "--new")
    copy, parent = listing.list_generations(opensearch_engine, name)
    assert (parent.index, copy.live) == (before, True)
    assert copy.created > parent.created
    assert publication.previous(opensearch_engine, name) == before


def test_what_its_gate_refused_is_whole_and_stays_until_somebody_decides(opensearch_engine, name, index, tmp_path, capsys):
    def verb(*arguments, status=0):
        assert run([*arguments, "--url", opensearch_engine.url]) == status
        return capsys.readouterr()

    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "number1"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\td3\t1\n")  # which the query does not find
    gate = ["--require", "nDCG@10>=0.99", "--on", str(tmp_path)]

    def refused(*options):
        said = index(numbered(5), *gate, *options, status=3).err
        newest = listing.list_generations(opensearch_engine, name)[0]
        assert (newest.complete, newest.live, newest.documents, bool(newest.missed)) == (True, False, 5, True)
        assert f"'termweave promote {name} {newest.index}' publishes it anyway, 'termweave prune {name}' removes it." in said
        return newest.index

    first = refused()
    assert refused() == first  # the same build asks its gate again
    assert "None of its generations is published" in verb("search", name, "number1", status=2).err
    index(numbered(4))  # another source leaves it where it is
    second = refused("--fresh")
    assert {first, second} < {each.index for each in listing.list_generations(opensearch_engine, name)}
    assert verb("generations", name).out.count("refused by its gate") == 2
    index(numbered(6))
    assert "4 documents in" not in verb("rollback", name).out
    assert documents(opensearch_engine, name) == 4  # not one of the two that are newer
    verb("promote", name, second)
    assert documents(opensearch_engine, name) == 5
    assert run(["verify", name, "--url", opensearch_engine.url]) == 0
    index(numbered(7))
    verb("rollback", name)  # newest before the live one that was published
    verb("prune", name, "--keep", "9", "--yes")
    assert first not in {each.index for each in listing.list_generations(opensearch_engine, name)}
    assert second in {each.index for each in listing.list_generations(opensearch_engine, name)}


def test_a_passage_and_a_document_of_one_id_are_named_and_none_is_dropped(index):
    long = {"_id": "a", "text": "This is a sentence of a text. " * 20}
    odd = {"_id": "a#1", "text": "short"}
    for documents, said in (([long, odd], "'a' (line 1) and 'a#1' (line 2)"), ([odd, long], "'a#1' (line 1) and 'a' (line 2)")):
        for more in ([], ["--skip-bad"], ["--plan"]):
            told = index(documents, "--passage-size", "20", *more, status=1).err
            assert f"the documents {said} would both be stored as 'a#1', because the id of a passage is DOCUMENT#NUMBER" in told
    index([long, odd])  # whole, each has its own


def test_an_object_of_a_mapping_that_names_some_of_its_entries_is_what_has_to_be_mended(index, tmp_path):
    (mapping := tmp_path / "mapping.json").write_text('{"properties": {"owner": {"properties": {"city": {"type": "keyword"}}}}}')
    documents = [{"_id": "a", "text": "x", "owner": {"city": "Rome", "zip": "00100"}}]
    said = index(documents, "--mapping", str(mapping), status=1).err
    assert 'Name all fields of that object in --mapping, or set "dynamic": false there.' in said
    mapping.write_text(mapping.read_text().replace('"owner": {', '"owner": {"dynamic": false, '))
    index(documents, "--mapping", str(mapping))


def test_a_corpus_of_titles_alone_is_said_to_be_one_where_something_else_may_be_its_text(index):
    products = [{"_id": f"p{n}", "title": f"Pump {n}", "sku": "A-1", "description": "A pump for clean water."} for n in range(3)]
    assert "No document of corpus.jsonl has a text" in (said := index(products).err)
    assert said.rstrip().endswith("--text-field description.")
    assert "has a text" not in index(products, "--text-field", "description").err
    assert "has a text" not in index([*products, {"_id": "p3", "text": "x"}]).err
    assert "has a text" not in index([{"_id": "label", "title": "card arrival", "kind": "bank"}]).err


def test_all_bad_lines_are_named_by_wish(index):
    documents = [*numbered(3), *[b"no json"] * 8]
    assert "line 9" not in index(documents, "--skip-bad").err
    assert "line 11" in index(documents, "--skip-bad", "--verbose").err
    notes = orjson.loads(index(documents, "--skip-bad", "--json").out)["notes"]
    assert all(any(f"line {line}:" in note for note in notes) for line in range(4, 12))


def test_documents_left_out_for_their_id_are_named_as_a_warning_also_after_a_resume(index):
    documents = [*numbered(3), *numbered(2), *({"_id": "d1", "text": f"other {number}"} for number in range(7))]
    said = "7 documents of corpus.jsonl left out, because an earlier document with other content has the same id: "

    with stopping(Job, "_verify"):
        index(documents, "--skip-bad", status=130)
    for more in ([], ["--update"]):
        told = index(documents, "--skip-bad", "--quiet", *more).err
        assert f"Warning: {said}'d1' (line 6; line 2 is kept), " in told
        assert "(line 10; line 2 is kept), ...." in told
        notes = orjson.loads(index(documents, "--skip-bad", "--json", *more).out)["notes"]
        assert "2 documents left out, with the id and content of an earlier document." in notes


def test_an_unfinished_first_build_is_not_said_to_begin_anew(opensearch_engine, name, index):
    with stopping(builder, "read_corpus"):
        assert "Stopped. Nothing was sent. The same command starts again." in index(numbered(3), status=130).err
    with stopping(Job, "_verify"):
        assert "acknowledged 3 of 3 documents. Run the same command to continue" in index(numbered(3), status=130).err
    (unfinished,) = listing.list_generations(opensearch_engine, name)
    assert (unfinished.complete, unfinished.documents) == (False, None)
    said = index(numbered(3), "--update").err
    (whole,) = listing.list_generations(opensearch_engine, name)
    assert (whole.index, whole.documents) == (unfinished.index, 3)
    assert whole.bytes > unfinished.bytes  # what `_stats` says may be 10 s old
    assert "its unfinished build is finished" in said
    assert "Resumed" in said
    assert "was made from" not in index(numbered(4)).err  # the same source's new version


def test_a_damaged_ledger_is_said_to_be_that_and_the_advice_works(opensearch_engine, name, index, tmp_path, capsys):
    index(numbered(3))
    path = storage.folder(opensearch_engine) / f"{live(opensearch_engine, name)}.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    assert run(["verify", name, "--url", opensearch_engine.url]) == 1
    said = capsys.readouterr().err
    assert f"It is damaged: remove {path}*" in said
    assert "disk space" not in said
    assert run(["verify", name, str(tmp_path / "corpus.jsonl"), "--url", opensearch_engine.url]) == 0
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    index(numbered(3), "--update")
    assert run(["verify", name, "--url", opensearch_engine.url]) == 0


def test_what_the_server_does_not_make_is_refused_with_a_next_step(opensearch_engine, name, index, tmp_path):
    assert "Name an analyzer that the server has" in index(numbered(1), "--analyzer", "klingon", status=1).err
    file = tmp_path / "own.json"
    file.write_text('{"properties": {"year": {"type": "number of years"}}}')
    assert "Correct the file that --mapping names" in index(numbered(1), "--mapping", str(file), status=1).err
    file.write_text('{"index.no_such_thing": 1}')
    assert "Correct the file that --settings names" in index(numbered(1), "--settings", str(file), status=1).err
    index(numbered(1))
    opensearch_engine.request("POST", f"/{live(opensearch_engine, name)}/_close")
    assert "Open the index again" in index(numbered(1), "--update", status=1).err
    (closed,) = listing.list_generations(opensearch_engine, name)
    assert (closed.live, closed.documents) == (True, None)
    assert run(["delete", name, "--yes", "--url", opensearch_engine.url]) == 0
    assert live(opensearch_engine, name) is None


def test_a_long_run_prints_lines_of_json(opensearch_engine, name, tmp_path, capsys):
    file = tmp_path / "docs.jsonl"
    file.write_text("".join(f'{{"id": "{number}", "text": "a river {number}"}}\n' for number in range(40)))
    assert run(["index", str(file), name, "--signals", "lexical", "--json-lines", "--url", opensearch_engine.url]) == 0
    shown = capsys.readouterr()
    lines = [orjson.loads(line) for line in shown.out.splitlines()]
    assert shown.err == ""
    for line in lines:
        schema = SCHEMAS / f"{line['schema'].removeprefix('termweave.').replace('/', '.')}.json"
        jsonschema.validate(line, orjson.loads(schema.read_bytes()))
    progress = [line for line in lines if line["schema"] == "termweave.progress/1"]
    assert {line["stage"] for line in progress} >= {"Reading", "Indexing"}
    assert (progress[-1]["done"], progress[-1]["total"]) == (40, 40)
    assert {line["schema"] for line in lines} == {"termweave.progress/1", "termweave.remark/1", "termweave.index/1"}
    assert (lines[-1]["schema"], lines[-1]["documents"]) == ("termweave.index/1", 40)
    assert run(["index", str(file), name, "--signals", "lexical", "--json-lines", "-q", "--url", opensearch_engine.url]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
