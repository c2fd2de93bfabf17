"""Many queries: in order, bounded, the same answers as one by one; and the run file that is whole or called partial."""

import gzip
import json
import os
import resource
import time
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from termweave.cli import run
from termweave.corpora.judgements import read_queries
from termweave.encoders import TextEncoder
from termweave.engine import Engine
from termweave.errors import InputError
from termweave.evaluation import runs
from termweave.records import Query
from termweave.search import batch
from tests.search.conftest import index_of

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "batch.1.json").read_text())
WANTED = [Query("q1", "parse json"), Query("q 2", "ein Text\u2028mit Zeilen"), Query("3", "?")]


@pytest.mark.parametrize(
    "written",
    [
        "q1\tparse json\n\nq 2\tein Text\u2028mit Zeilen\n3\t?\n",
        "query-id\ttext\nq1\tparse json\nq 2\tein Text\u2028mit Zeilen\n3\t?\n",
        '{"_id": "q1", "text": "parse json"}\n{"id": "q 2", "query": "ein Text\u2028mit Zeilen"}\n{"_id": 3, "text": "?"}\n',
    ],
)
def test_queries_are_read_by_what_the_file_holds(written, tmp_path):
    (tmp_path / "queries").write_text(written)
    assert read_queries(str(tmp_path / "queries")) == WANTED
    with gzip.open(tmp_path / "queries.jsonl.gz", "wt") as file:
        file.write(written)
    assert read_queries(str(tmp_path / "queries.jsonl.gz")) == WANTED


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("q1\tx\nno tab\n", "line 2: an id, a tab and a text are expected"),
        ('{"_id": "a", "text": "x"}\n{"_id": "a"}\n', "line 2: a query without text"),
        ("q1\tx\nq2\ty\nq1\tz\n", "line 3: the id 'q1' is already on line 1"),
        ("id\ttext\n", "contains no query"),
    ],
)
def test_bad_lines_are_named(written, said, tmp_path):
    (tmp_path / "bad").write_bytes(written if isinstance(written, bytes) else written.encode())
    with pytest.raises(InputError, match=said) as raised:
        read_queries(str(tmp_path / "bad"))
    assert "skip" not in raised.value.hint  # no query can be left out


def test_a_run_has_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "x.trec"
    with runs.Writer(path, "x") as writer:
        writer.add("q1", {"a": 2.0, "b": 1.0})
        assert not path.exists()
    before = path.read_text()
    with suppress(KeyboardInterrupt), runs.Writer(path, "x") as writer:
        writer.add("q2", {"c": 1.0})
        raise KeyboardInterrupt
    assert path.read_text() == before
    assert runs.read(tmp_path / "x.trec.partial").scores == {"q2": {"c": 1.0}}


def test_what_a_full_disk_leaves_of_a_run_is_whole_queries(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = runs.Writer(tmp_path / "x.trec", "x")
    run = {f"q{number}": {f"d{place}": -place for place in range(100)} for number in range(10)}

    def write():
        with writer:
            for query, scores in run.items():
                writer.add(query, scores)

    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = runs.read(writer.partial).scores
    assert writer.queries > 1
    assert found == dict(list(run.items())[: writer.queries])


@pytest.fixture(scope="module")
def index(opensearch_engine):
    """Twenty documents on four subjects with all signals."""
    documents = [
        {"id": f"{each}-{n}", "text": f"{each} part {n}"} for each in ("timer", "json", "thread", "file") for n in range(5)
    ]
    with index_of(opensearch_engine, documents) as opened:
        yield opened


@pytest.fixture
def asked(tmp_path):
    """More queries than one request takes, some of them without an answer."""
    path = tmp_path / "queries.tsv"
    path.write_text("".join(f"q{n}\t{('timer part', 'json part', '?!')[n % 3]}\n" for n in range(70)))
    return path


def test_a_file_of_queries_gives_what_the_queries_give_one_by_one(index, asked, tmp_path, capsys):
    out = tmp_path / "out.trec"
    options = ["-k", "7", "--rerank", "rnn", "--json", "--url", index.engine.url]
    assert run(["search", index.name, "--queries", str(asked), "--run", str(out), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    assert (told["queries"], told["name"], told["generation"]) == (70, "hybrid+rNN", index.generation)
    found, everything = runs.read(out).scores, read_queries(str(asked))
    for query in everything[:3]:
        alone = {hit.id: pytest.approx(hit.score, abs=1e-5) for hit in index.search(query.text, k=7, rerank="rnn")}
        assert list(found.get(query.id, {}).items()) == list(alone.items())
    assert list(found) == [query.id for query in everything if query.id in found]
    assert not out.with_name("out.trec.partial").exists()


def test_a_batch_of_queries_is_one_request_and_one_pass_of_the_encoder(index, monkeypatch):
    requests, passes = [], []
    request, encode = Engine.request, TextEncoder.encode
    index.search("json")
    monkeypatch.setattr(
        Engine, "request", lambda self, method, path, **o: requests.append(path) or request(self, method, path, **o)
    )
    monkeypatch.setattr(TextEncoder, "encode", lambda self, texts, **o: passes.append(len(texts)) or encode(self, texts, **o))
    asked = {f"q{number}": f"json part {number}" for number in range(2 * batch.QUERIES + 3)}
    found = index.run(asked, k=5, rerank="rnn")
    assert len(found.scores) == len(asked)
    assert requests == [f"/{index.generation}/_msearch"] * 3
    assert sorted(passes) == [3, batch.QUERIES, batch.QUERIES]


def test_the_judged_queries_of_a_folder_are_asked_and_ids_that_a_run_spells_otherwise_are_said(index, tmp_path, capsys):
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "corpus.jsonl").write_text('{"_id": "timer-1", "text": "timer"}\n')
    (tmp_path / "set" / "queries.jsonl").write_text('{"_id": "q 1", "text": "timer"}\n{"_id": "q2", "text": "json"}\n')
    (tmp_path / "set" / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq 1\ttimer-1\t1\n")
    out = tmp_path / "out.trec"
    options = ["--run", str(out), "--mode", "lexical", "--url", index.engine.url]
    assert run(["search", index.name, "--queries", f"{tmp_path / 'set'}:dev", *options]) == 0
    assert set(runs.read(out).scores) == {"q 1"}
    assert "1 id contains blanks or '%', or '=' or '@' at the beginning, for example 'q 1'" in capsys.readouterr().err


def test_a_pipe_is_written_to_and_a_link_leads_to_the_run(tmp_path):
    pipe, link, target = tmp_path / "pipe", tmp_path / "link.trec", tmp_path / "target.trec"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    target.touch()
    link.symlink_to(target)
    for path in (pipe, link):
        with runs.Writer(path, "x") as writer:
            writer.add("q1", {"a": 1.0})
    assert os.read(reader, 100) == target.read_bytes() == b"q1 Q0 a 1 1 x\n"
    os.close(reader)
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link.trec", "target.trec"}


def test_a_run_says_how_many_queries_were_too_long_or_found_nothing_and_which_filter_nothing_passes(index, tmp_path, capsys):
    queries = tmp_path / "queries.tsv"
    queries.write_text("q1\ttimer\nq2\tzyzzyva\nq3\t" + " ".join(f"word{n}" for n in range(1500)) + " json\n")
    search = ["search", index.name, "--queries", str(queries), "--run", str(tmp_path / "out.trec"), "--url", index.engine.url]
    assert run([*search, "--mode", "lexical", "--json"]) == 0
    printed, said = capsys.readouterr()
    jsonschema.validate(json.loads(printed), SCHEMA)
    assert (json.loads(printed)["shortened"], json.loads(printed)["empty"]) == ({"lexical": 1}, 1)
    assert "1 query has more terms than the server allows clauses" in said
    assert "1 query found nothing and has no line in the run." in said
    assert set(runs.read(tmp_path / "out.trec").scores) == {"q1", "q3"}
    assert run([*search, "--filter", "exists(nofield)"]) == 0
    said = capsys.readouterr().err
    assert "3 queries found nothing and have no line in the run." in said
    assert "No document has a field 'nofield'." in said


def test_what_was_done_before_an_interruption_is_a_valid_run(index, asked, tmp_path, capsys, monkeypatch):
    original = batch.ranked

    def interrupted(*arguments, **options):
        for number, pair in enumerate(original(*arguments, **options)):
            if number == 20:
                raise KeyboardInterrupt
            yield pair

    monkeypatch.setattr(batch, "ranked", interrupted)
    out = tmp_path / "out.trec"
    assert run(["search", index.name, "--queries", str(asked), "--run", str(out), "--url", index.engine.url]) == 130
    assert "20 of 70 queries are in" in capsys.readouterr().err
    assert not out.exists()
    assert set(runs.read(tmp_path / "out.trec.partial").scores) <= {f"q{n}" for n in range(20)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a QUERY"),
        (["--queries", "q.tsv"], "belong together"),
        (["--queries", "q.tsv", "--run", "out", "--explain"], "shows nothing"),
        (["--queries", "q.tsv", "--run", "no-such-folder/out"], "no-such-folder cannot be written to: it does not exist"),
    ],
)
def test_options_that_do_not_go_together_are_said(arguments, said, capsys):
    assert run(["search", "docs", *arguments, "--url", "http://127.0.0.1:9"]) == 2
    assert said in capsys.readouterr().err


def test_blocks_are_answered_in_their_order_a_few_ahead_and_none_after_the_reader_has_gone():
    begun = []

    def answer(block):
        begun.append(block)
        time.sleep(0.02 if block % 2 else 0.0)
        return [block, -block]

    answers = batch._in_order(answer, iter(range(1_000)), workers=2)
    assert [next(answers) for _ in range(6)] == [0, 0, 1, -1, 2, -2]
    answers.close()
    count = len(begun)
    assert count <= 3 + 2 * 2 + 2
    time.sleep(0.1)
    assert len(begun) == count
