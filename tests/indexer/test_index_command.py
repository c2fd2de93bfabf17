"""What `index`, `verify` and `delete` say on a real OpenSearch: sentences that are true and name the next step."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import orjson
import pytest

from termweave.catalog.generations import live
from termweave.cli import run
from termweave.indexer.generations import listing
from termweave.indexer.job import Job
from termweave.indexer.ledger import storage

from .builds import command, numbered
from .conftest import stopping
from .proxy import BusyProxy

pytestmark = pytest.mark.engine
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--update", "--yes"], "--yes belongs to --update --delete-missing"),
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
    index(numbered(4))  # another source leaves it where it is
    second = refused("--fresh")
    assert {first, second} < {each.index for each in listing.list_generations(opensearch_engine, name)}
    assert verb("generations", name).out.count("refused by its gate") == 2
    index(numbered(6))
    verb("rollback", name)
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 4  # not one of the two that are newer
    verb("promote", name, second)
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 5
    verb("verify", name)
    index(numbered(7))
    verb("rollback", name)  # newest before the live one that was published
    verb("prune", name, "--keep", "9", "--yes")
    assert {first, second} & {each.index for each in listing.list_generations(opensearch_engine, name)} == {second}


def test_a_passage_and_a_document_of_one_id_are_named_and_none_is_dropped(index):
    long = {"_id": "a", "text": "This is a sentence of a text. " * 20}
    odd = {"_id": "a#1", "text": "short"}
    for documents, said in (([long, odd], "'a' (line 1) and 'a#1' (line 2)"), ([odd, long], "'a#1' (line 1) and 'a' (line 2)")):
        for more in ([], ["--skip-bad"], ["--plan"]):
            told = index(documents, "--passage-size", "20", *more, status=1).err
            assert f"the documents {said} would both be stored as 'a#1', because the id of a passage is DOCUMENT#NUMBER" in told
    index([long, odd])  # whole, each has its own


def test_an_unfinished_first_build_is_finished_by_an_update(opensearch_engine, name, index):
    with stopping(Job, "_verify"):
        assert "acknowledged 3 of 3 documents. Run the same command to continue" in index(numbered(3), status=130).err
    (unfinished,) = listing.list_generations(opensearch_engine, name)
    assert (unfinished.complete, unfinished.documents) == (False, None)
    assert "its unfinished build is finished" in index(numbered(3), "--update").err
    (whole,) = listing.list_generations(opensearch_engine, name)
    assert (whole.index, whole.documents) == (unfinished.index, 3)


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


@pytest.mark.parametrize("more", ["--update --new", "", "verify --deep"])
def test_the_lineage_of_the_live_generation_is_read_once(desk, tmp_path, more):
    index = desk.build(20).index
    desk.source([*numbered(18), {"_id": "new", "text": "something new"}])
    with BusyProxy(desk.engine.url) as proxy:
        words = command(tmp_path / "corpus.jsonl", desk.name, proxy.url, *more.split())
        assert run(["verify", desk.name, "--deep", "--url", proxy.url] if more.startswith("verify") else words) == 0
    assert proxy.requests.count(("GET", f"/{index}/_mapping")) + proxy.requests.count(("GET", f"/{desk.name}/_mapping")) == 1
