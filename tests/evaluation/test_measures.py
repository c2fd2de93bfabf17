"""Measures against trec_eval, by hand and on every query of real sets; tests of differences against slow versions; files of runs."""

import gzip
import itertools
import math
import subprocess
import sys
import tracemalloc
import warnings

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave import corpora
from termweave.errors import InputError, UsageError
from termweave.evaluation import runs
from termweave.evaluation.measures import JUDGED, MEASURES, holm, per_query, randomisation_test
from termweave.records import Run

QRELS = {"q1": {"a": 2, "b": 1, "z": 0}, "q2": {"c": 1}, "q3": {"d": 1}}
RUN = Run("test", {"q1": {"b": 3.0, "x": 2.0, "a": 1.0}, "q2": {"x": 2.0, "c": 1.0}, "q3": {}})


def test_values_by_hand_and_a_query_without_results_counts():
    found = per_query(RUN, QRELS, ["q1", "q2", "q3"])
    assert found["nDCG@10"] == pytest.approx([(1 + 2 / math.log2(4)) / (2 + 1 / math.log2(3)), 1 / math.log2(3), 0.0])
    assert found["MRR@10"] == pytest.approx([1.0, 0.5, 0.0])
    assert found["recall@100"] == pytest.approx([1.0, 1.0, 0.0])
    assert per_query(RUN, QRELS, ["q1"], relevant_from=2)["MRR@10"] == pytest.approx([1 / 3])


def test_the_judged_share_counts_zeros_and_what_is_missing():
    qrels = {"q1": {"a": 0, "b": 2}, "q2": {"c": 1}, "q3": {"d": 1}}
    run = Run("x", {"q1": {"a": 3.0, "x": 2.0, "b": 1.0, "y": 0.5}, "q2": {}})
    assert per_query(run, qrels, ["q1", "q2", "q3"], measures=[JUDGED])[JUDGED].tolist() == [0.5, 0, 0]
    ten = Run("x", {"q1": {**{f"x{number}": 20.0 - number for number in range(10)}, "a": 1.0}})
    assert per_query(ten, qrels, ["q1"], measures=[JUDGED])[JUDGED].tolist() == [0]


_SPAM = """
from termweave.evaluation import per_query
from termweave.records import Run

qrels = {"q1": {"a": 2, "b": -2}, "spam": {"a": -2, "b": -3}, "q2": {"b": 1}}
run = Run("test", {query: {"b": 2.0, "a": 1.0} for query in qrels})
print([values.tolist() for values in per_query(run, qrels, list(qrels), measures=["nDCG@1", "MRR@10", "recall@10"]).values()])
"""


_ODD = """
def values(queries, documents):
    first, second, third = documents
    qrels = {query: {first: 2, second: 1} for query in queries}
    run = Run("test", {query: {second: 0.3, third: 0.2, first: 0.1} for query in queries})
    return [each.tolist() for each in per_query(run, qrels, queries, measures=["nDCG@2", "nDCG@10", "MRR@10", "mrr@10", "recall@1"]).values()]

odd = ["a\\0b", "a\\0c", "a", "", "\\0", "\\ud800", "1", "0"]
plain = [f"q{n}" for n in range(len(odd))]
expected = values(plain, ["x", "y", "z"])
assert 0 < min(map(min, expected)) and max(map(max, expected[:2])) < 1, expected
for documents in (odd[:3], odd[2:5], odd[5:]):
    assert values(odd, documents) == expected, values(odd, documents)
"""


def test_neither_spam_nor_ids_that_are_no_texts_of_c_end_the_process():
    """In one of its own. Grades below -1 ended it (SIGSEGV), as did ids that are equal up to a NUL (SIGABRT), and half of a surrogate pair."""
    done = subprocess.run([sys.executable, "-c", _SPAM + _ODD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[[0.0, 0.0, 1.0], [0.5, 0.0, 1.0], [1.0, 0.0, 1.0]]"), done.stderr


@pytest.mark.parametrize("name", ["nDCG", "nDCG@x", "precision@10", "recall@0"])
def test_unknown_measures_are_refused(name):
    with pytest.raises(UsageError, match="measure"):
        per_query(RUN, QRELS, ["q1"], measures=[name])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([-0.5, -0.2, 0.0, 0.1, 0.3]), min_size=1, max_size=10))
def test_randomisation_agrees_with_all_sign_assignments(differences):
    values = np.array(differences)
    sums = [abs(values @ signs) for signs in itertools.product([-1, 1], repeat=len(values))]
    exact = sum(total >= abs(values.sum()) - 1e-9 for total in sums) / len(sums)
    assert randomisation_test(values, np.zeros(len(values))) == pytest.approx(exact, abs=0.02)


def test_p_of_many_queries_takes_little_memory_and_is_that_of_all_draws_at_once():
    draw = np.random.default_rng(5)
    first, second = draw.random(10_001), draw.random(10_001)
    difference = first - second
    signs = np.random.default_rng(0).integers(0, 2, size=(400, len(difference)), dtype=np.int8) * 2.0 - 1
    extreme = (np.abs(signs @ difference) >= abs(difference.sum()) - 1e-9).sum()
    tracemalloc.start()
    p, peak = randomisation_test(first, second, draws=400), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6
    assert p == (extreme + 1) / 401
    assert randomisation_test(first + 0.05, first, draws=2000) < 0.001


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_never_lowers_and_keeps_the_order(values):
    corrected = holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, corrected, strict=True))
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert [corrected[place] for place in order] == sorted(corrected)


def test_what_is_measured_is_the_order_that_is_shown():
    for first in (0.5, 0.5 + 1e-12):  # trec_eval's float32 cannot tell these apart, and would take the higher id first
        tied = Run("tied", {"q": {"a": first, "b": 0.5}})
        found = per_query(tied, {"q": {"a": 1}}, ["q"], measures=["nDCG@1", "MRR@10", "recall@1"])
        assert [float(values[0]) for values in found.values()] == [1.0, 1.0, 1.0]


#: Data set, with the split whose judgements are read.
SETS = (
    *("banking77:test", "cmrc2018:test", "cranfield:test", "medquad:test", "movies:dev", "nfcorpus:test"),
    *("trec-dl-2019-2020:test", "twitter-airlines:test"),
)


def ranking(random, grades, strangers):
    """Some of the judged documents among others, in any order, a few with equal scores; now and then nothing."""
    documents = [each for each in grades if random.random() < 0.8] + [f"other {n}" for n in range(random.integers(0, strangers))]
    random.shuffle(documents)
    scores = np.round(np.sort(random.uniform(-5, 30, len(documents)))[::-1], int(random.integers(0, 6)))
    return dict(zip(documents, scores.tolist(), strict=True))


def by_hand(documents, grades, relevant_from):
    """The definitions as they are printed: gains are grades, discounts log2(rank + 1)."""
    gains = [max(0, grades.get(document, 0)) for document in documents[:10]]
    ideal = sorted((max(0, grade) for grade in grades.values()), reverse=True)[:10]
    best = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal, 1))
    found = [rank for rank, document in enumerate(documents, 1) if grades.get(document, 0) >= relevant_from]
    relevant = sum(grade >= relevant_from for grade in grades.values())
    return {
        "nDCG@10": sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1)) / best if best else 0.0,
        "MRR@10": 1 / found[0] if found and found[0] <= 10 else 0.0,
        "recall@100": sum(rank <= 100 for rank in found) / relevant if relevant else 0.0,
    }


@pytest.mark.parametrize("name", SETS)
def test_every_query_of_a_set_has_trec_evals_figures(name, shared):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytrec_eval

    dataset = corpora.open_dataset(str(shared / "data" / name))
    qrels, level = dataset.qrels(), dataset.relevant_from
    random = np.random.default_rng(len(name))
    run = {query: ranking(random, grades, 130 if len(qrels) < 1500 else 20) for query, grades in qrels.items()}
    queries = list(qrels)
    ours = per_query(Run("x", run), qrels, queries, relevant_from=level)
    # trec_eval orders equal scores by id and keeps float32; what it is shown here is the order, as scores it can tell apart.
    shown = {query: {document: -rank for rank, document in enumerate(scores)} for query, scores in run.items() if scores}
    cut = {query: dict(list(scores.items())[:10]) for query, scores in shown.items()}
    graded = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(shown)
    binary = pytrec_eval.RelevanceEvaluator(qrels, {"recall.100"}, relevance_level=level).evaluate(shown)
    first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}, relevance_level=level).evaluate(cut)
    theirs = (("nDCG@10", graded, "ndcg_cut_10"), ("MRR@10", first, "recip_rank"), ("recall@100", binary, "recall_100"))
    for measure, found, key in theirs:
        np.testing.assert_allclose(ours[measure], [found.get(query, {}).get(key, 0.0) for query in queries], atol=1e-9)
    slow = [by_hand(list(run[query]), qrels[query], level) for query in queries]
    for measure in MEASURES:
        np.testing.assert_allclose(ours[measure], [each[measure] for each in slow], atol=1e-9)


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
    run, path = Run("hybrid", {"q1": {"a": 1.25, "b c": 0.5}, "q2": {"d": -3.0}}), tmp_path / "x.trec"
    runs.write(run, path)
    written = path.read_bytes()
    assert b" b%20c 2 " in written
    for content in (written, b"\xef\xbb\xbf" + written, written.replace(b"\n", b"\r\n"), gzip.compress(written)):
        path.write_bytes(content)
        assert runs.read(path) == run
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
    ours = per_query(run, qrels, ["q1"], measures=["nDCG@10", "MRR@10"])
    scores = {"bad": 1.0, "tied": 9.0, "upper": 9.0000001, "good": 9.5}
    for name, measure in (("nDCG@10", ir_measures.nDCG @ 10), ("MRR@10", ir_measures.RR @ 10)):
        assert ours[name][0] == pytest.approx(ir_measures.calc_aggregate([measure], qrels, {"q1": scores})[measure])
