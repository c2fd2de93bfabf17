"""Run files: they come back as they were, ids that a column cannot hold are percent-encoded, and a line that is none is named."""

import gzip

import ir_measures
import pytest

from termweave.errors import InputError, UsageError
from termweave.evaluation import measures, runs
from termweave.records import Run

IDS = (
    "\ufeffmark", "=HYPERLINK(0)", "@SUM(1)", "a b", "100%", "tab\there", "line\nbreak", "a=b", "-5", "+1", "caf\u00e9", "nul\0byte",
)  # fmt: skip


def test_no_column_of_a_run_is_a_formula_of_equals_or_at(tmp_path):
    made = Run("=name", {query: dict.fromkeys(IDS, 1.0) for query in IDS})
    runs.write(made, tmp_path / "run.trec")
    columns = [line.split(" ") for line in (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines()]
    assert {len(row) for row in columns} == {6}
    assert not any(cell.startswith(("=", "@")) or "\0" in cell for row in columns for cell in row)
    again = runs.read(tmp_path / "run.trec")
    assert list(again.scores) == list(IDS)
    assert list(again.scores[IDS[0]]) == list(IDS)


def test_runs_come_back_from_their_files(tmp_path):
    run = Run("hybrid", {"q1": {"a": 1.25, "b c": 0.5}, "q2": {"d": -3.0}})
    runs.write(run, tmp_path / "x.trec")
    assert " b%20c 2 " in (tmp_path / "x.trec").read_text()
    plain, other = tmp_path / "x.trec", tmp_path / "other.trec"
    assert runs.read(plain) == run
    written = plain.read_bytes()
    for content in (b"\xef\xbb\xbf" + written, written.replace(b"\n", b"\r\n"), gzip.compress(written)):
        other.write_bytes(content)
        assert runs.read(other) == run
    with pytest.raises(UsageError, match=r"nothing\.trec cannot be opened: No such file or directory"):
        runs.read(tmp_path / "nothing.trec")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"q1 Q0 a 1 0.5 x\n\nq1 a\n", "line 3: not a line of a run"),
        (b"q1 Q0 a 1 nan x\n", "line 1: not a line of a run"),
        (b"q1 Q0 a 1 2 x\nq1 Q0 a 2 1 x\n", "line 2: document 'a' for the second"),
        ("q2 Q0 Köln 2 -4 x\n".encode("latin-1"), "line 1: byte 0xf6 at column 8 is not UTF-8"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, content, sentence):
    (tmp_path / "x.trec").write_bytes(content)
    with pytest.raises(InputError, match=rf"x\.trec, {sentence}"):
        runs.read(tmp_path / "x.trec")


def test_ids_that_another_program_wrote_with_escapes_stay_as_they_are(tmp_path):
    path, ids = tmp_path / "other.trec", ["http://host/K%C3%B6ln%27s", "50%", "100%25!", "a%20b", "a%2fb"]
    for foreign in (0, 1, 4):  # one escape that termweave would not write: then none is termweave's
        others = [ids[foreign], *(each for each in ids if each in {"100%25!", "a%20b"})]
        path.write_text("".join(f"q1 Q0 {each} 1 {-place} x\n" for place, each in enumerate(others)))
        assert list(runs.read(path).scores["q1"]) == others
    path.write_text("q1 Q0 100%25! 1 2 x\nq1 Q0 a%20b 1 1 x\n")
    assert list(runs.read(path).scores["q1"]) == ["100%!", "a b"]


def test_the_scores_of_a_run_order_it_whatever_its_lines_say(tmp_path):
    path = tmp_path / "other.trec"
    path.write_text("q1 Q0 bad 1 1.0 x\nq1 Q0 tied 2 9.0 x\nq1 Q0 upper 3 9.0000001 x\nq1 Q0 good 4 9.5 x\n")
    run = runs.read(path)
    assert list(run.scores["q1"]) == ["good", "upper", "tied", "bad"]  # 9.0 and 9.0000001 are equal as float32: by id, descending
    qrels = {"q1": {"good": 1, "tied": 2}}
    ours = measures.per_query(run, qrels, ["q1"], measures=["nDCG@10", "MRR@10"])
    scores = {"bad": 1.0, "tied": 9.0, "upper": 9.0000001, "good": 9.5}
    for name, measure in (("nDCG@10", ir_measures.nDCG @ 10), ("MRR@10", ir_measures.RR @ 10)):
        assert ours[name][0] == pytest.approx(ir_measures.calc_aggregate([measure], qrels, {"q1": scores})[measure])
