"""Click logs as judgements: recognised by their content, read like every data set, and not stopped by a line that is no click."""

import gzip
import json

import pytest

from termweave.corpora import open_dataset
from termweave.corpora.behaviour.clicks import ClickLog
from termweave.corpora.judgements import query_id
from termweave.errors import InputError, UsageError

LINES = ["query\tdocument\tcount", "green  tea\td1\t3", "green tea\td2\t1", "coffee\td3\t0", "kettle\td4"]


def judged(log):
    opened = open_dataset(str(log))
    return {query.text: opened.qrels()[query.id] for query in opened.queries()}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "clicks.tsv"
    path.write_text("\n".join(LINES))
    return path


def test_a_log_is_judgements(log):
    assert judged(log) == {"green tea": {"d1": 1, "d2": 1}, "kettle": {"d4": 1}}
    opened = open_dataset(f"{log}:all")
    assert (opened.name, opened.split, opened.notes) == ("clicks.tsv", "all", [])
    assert opened.queries()[0].id == query_id("green tea")  # not its text: a document may have that as its id, and it may be long
    with pytest.raises(UsageError, match="no split 'dev'"):
        open_dataset(f"{log}:dev")
    with pytest.raises(UsageError, match="A click log has no documents"):
        next(iter(opened.documents()))


@pytest.mark.parametrize(
    "written",
    [
        b"green tea\td1\r\nkettle\td4\r\n",
        gzip.compress(b"green tea\td1\t1\nkettle\td4\t2\n"),
        "\ufeffgreen tea\td1\t1\nkettle\td4\t2\n".encode(),
        b"".join(json.dumps({"query": q, "document": d}).encode() + b"\n" for q, d in (("green tea", "d1"), ("kettle", "d4"))),
        b'not a click\n{"query": "green tea", "document": "d1"}\n{"query": "kettle", "document": "d4", "count": null}\n',
    ],
    ids=["pairs", "packed", "mark", "json", "odd-first-line"],
)
def test_every_form_is_recognised_by_its_content(written, log):
    log.write_bytes(written)
    assert judged(log) == {"green tea": {"d1": 1}, "kettle": {"d4": 1}}


@pytest.mark.parametrize(
    "written", ["id,text\n1,tea\n", '{"_id": "a", "text": "tea"}\n', "a\ttitle\ttext\n", "", "tea\n\ncoffee\n"]
)
def test_other_files_are_none(written, log):
    log.write_text(written)
    assert not ClickLog.recognises(str(log))
    with pytest.raises(UsageError) as refused:
        open_dataset(log)
    assert "a click log" in refused.value.hint


@pytest.mark.parametrize(
    ("odd", "why"),
    [("what\t" + "x" * 9_000 + "\t1", "has 9,000 characters"), ("a\tb\tc\td", r"'a\\tb\\tc\\td'"), ("{broken", "'{broken'")],
    ids=["long-id", "columns", "json"],
)
def test_an_odd_line_is_left_out_and_counted(odd, why, log):
    log.write_text("\n".join([*LINES, odd, odd]))
    assert judged(log) == {"green tea": {"d1": 1, "d2": 1}, "kettle": {"d4": 1}}
    (note,) = open_dataset(str(log)).notes
    assert note.startswith("2 lines of clicks.tsv left out: not a click, such as line 6")
    assert why.replace("\\\\", "\\") in note
    assert "--skip-bad" not in note


def test_a_file_with_hardly_a_click_is_named(log):
    log.write_text("q\td\t1\na\tb\tc\td\na\tb\tc\td\n")
    with pytest.raises(InputError, match="line 2 is not a click") as refused:
        open_dataset(str(log)).queries()
    assert "Write query, document id and count" in refused.value.hint
