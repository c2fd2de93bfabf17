"""What `index` and `verify` say on a real OpenSearch, also of documents that it refuses: true sentences that name the next step."""

from dataclasses import replace
from pathlib import Path

import jsonschema
import orjson
import pytest

from termweave.cli import run
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage

from .builds import LEXICAL, command, numbered
from .conftest import stopping
from .proxy import BusyProxy

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_what_its_gate_refused_is_whole_and_stays_until_somebody_decides(desk):
    def refused(**options):
        assert desk.build(5, replace(LEXICAL, **options), gate=lambda _: "No.").missed == "No."
        newest = desk.generations[0]
        assert (newest.complete, newest.live, newest.documents, newest.missed) == (True, False, 5, "No.")
        return newest.index

    first = refused()
    assert refused() == first  # the same build asks its gate again
    desk.build(4)  # another source leaves it where it is
    second = refused(fresh=True)
    assert desk.run("generations").out.count("refused by its gate") == 2
    desk.build(6)
    desk.run("rollback")
    assert desk.count == 4  # not one of the two that are newer
    desk.run("promote", second)
    assert desk.count == 5
    desk.run("verify")
    desk.build(7)
    desk.run("rollback")  # newest before the live one that was published
    desk.run("prune", "--keep", "9", "--yes")
    assert {first, second} & {each.index for each in desk.generations} == {second}


def test_a_passage_and_a_document_of_one_id_are_named_and_none_is_dropped(index):
    long = {"_id": "a", "text": "This is a sentence of a text. " * 20}
    odd = {"_id": "a#1", "text": "short"}
    for documents, said in (([long, odd], "'a' (line 1) and 'a#1' (line 2)"), ([odd, long], "'a#1' (line 1) and 'a' (line 2)")):
        for more in ([], ["--skip-bad"], ["--plan"]):
            told = index(documents, "--passage-size", "20", *more, status=1).err
            assert f"the documents {said} would both be stored as 'a#1', because the id of a passage is DOCUMENT#NUMBER" in told
    index([long, odd])  # whole, each has its own


def test_an_unfinished_first_build_is_finished_by_an_update(desk, index):
    with stopping(Job, "_verify"):
        assert "acknowledged 3 of 3 documents. Run the same command to continue" in index(numbered(3), status=130).err
    (unfinished,) = desk.generations
    assert (unfinished.complete, unfinished.documents) == (False, None)
    assert "its unfinished build is continued" in index(numbered(3), "--update").err
    (whole,) = desk.generations
    assert (whole.index, whole.documents) == (unfinished.index, 3)


def test_a_damaged_ledger_is_said_to_be_that_and_the_advice_works(desk, index, tmp_path):
    index(numbered(3))
    path = storage.file_of(desk.engine, desk.live)
    path.write_bytes(b"no database at all" * 1000)
    said = desk.run("verify", status=1).err
    assert f"The file is damaged: remove {path}*" in said
    assert "disk space" not in said
    desk.run("verify", str(tmp_path / "corpus.jsonl"))
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    index(numbered(3), "--update")
    desk.run("verify")


def test_a_long_run_prints_lines_of_json(index):
    shown = index(numbered(40), "--json-lines")
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
    assert len(index(numbered(40), "--json-lines", "-q").out.splitlines()) == 1


@pytest.mark.parametrize("more", ["--update --new", "verify --deep"])
def test_the_lineage_of_the_live_generation_is_read_once(desk, tmp_path, more):
    index = desk.build(20).index
    desk.source([*numbered(18), {"_id": "new", "text": "something new"}])
    with BusyProxy(desk.engine.url) as proxy:
        build = command(tmp_path / "corpus.jsonl", desk.name, *more.split())
        words = ["verify", desk.name, "--deep"] if more.startswith("verify") else build
        assert run([*words, "--url", proxy.url]) == 0
    assert proxy.requests.count(("GET", f"/{index}/_mapping")) + proxy.requests.count(("GET", f"/{desk.name}/_mapping")) == 1


@pytest.mark.usefixtures("long_ids")
def test_what_was_refused_is_counted_nowhere_and_said_everywhere(desk, index, tmp_path):
    odd = [{"_id": f"{number}{'y' * 40_000}", "text": "an id that no field can hold"} for number in range(4)]
    first = index([*numbered(196), *odd], "--allow-refused", "5%")
    assert f"{desk.name}: 196 documents in" in first.out
    assert "refused 4 of 200" in first.err
    assert "a term has at most 32,766 bytes" in first.err  # what to do, and not only in the file
    assert desk.open().lineage.documents == 196
    again = index([*numbered(197), *odd], "--allow-refused", "5%", "--update", "--json")
    found = orjson.loads(again.out)
    assert found["update"] == {"new": 1, "changed": 0, "unchanged": 196, "gone": 0, "refused": 4, "deleted": 0, "outdated": 0}
    assert found["documents"] == 197
    assert "4 documents or passages were refused" in desk.run("verify").err
    told = desk.run("verify", tmp_path / "corpus.jsonl", "--json", status=4)
    assert len(orjson.loads(told.out)["refused"]) == 4
    assert "correct them in the source" in told.err
    assert "to mend it" not in told.err


@pytest.mark.parametrize("parts", [(1, 1), (1, 40), (40, 1), (40, 20)])
def test_a_changed_document_that_is_refused_stays_what_it_was_also_in_passages(desk, index, tmp_path, parts):
    (mapping := tmp_path / "own.json").write_text('{"properties": {"year": {"type": "integer"}}}')
    before, after = ({"_id": "long", "text": "This is a sentence of a text. " * part} for part in parts)
    index([*numbered(3), {**before, "year": 1999}], "--mapping", str(mapping), "--passage-size", "20")
    for _ in range(2):
        told = index([*numbered(3), {**after, "year": "long ago"}], "--update", "--allow-refused", "99%")
        assert "0 new, 0 changed, 1 refused, 3 unchanged" in told.out
        assert f"{desk.name}: 4 documents" in told.out
        assert "Correct the value in the source" in told.err
        assert [hit.id for hit in desk.open().search("sentence", mode="lexical")] == ["long"]
        assert " refused" in desk.run("verify", "--deep").err
    said = desk.run("verify", tmp_path / "corpus.jsonl", status=4).err
    assert parts != (1, 1) or "refused all documents that differ" in said
    assert "refused" not in index([*numbered(3), {**after, "year": 2000}], "--update").out
    assert "refused" not in desk.run("verify", tmp_path / "corpus.jsonl").err
