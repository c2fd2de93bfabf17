"""Gates without a server."""

from dataclasses import dataclass

import numpy as np
import pytest

from termweave.errors import UsageError
from termweave.evaluation import gates, judgements, runs
from termweave.evaluation.experiment import Experiment
from termweave.records import Run


@pytest.mark.parametrize(
    ("text", "system", "measure", "least", "margin", "run"),
    [
        ("nDCG@10>=.4", None, "nDCG@10", 0.4, None, None),
        ("weights:3,dense:1+rNN:nDCG@10>=.2", "weights:3,dense:1+rNN", "nDCG@10", 0.2, None, None),
        ("recall@100 within .01 of runs/a b.trec", None, "recall@100", None, 0.01, "runs/a b.trec"),
        ("hybrid+rNN>boost@votes:0.2:nDCG@10>=0.4", "hybrid+rNN>boost@votes:0.2", "nDCG@10", 0.4, None, None),
    ],
)
def test_requirements_are_read(text, system, measure, least, margin, run):
    gate = gates.parse(text)
    assert (gate.system, gate.measure, gate.least, gate.margin) == (system, measure, least, margin)
    assert (str(gate.run) if gate.run else None) == run


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["", "nDCG>=.4", "nDCG@10>.4", "nDCG@10>=", "nDCG@10 within of RUN", "nDCG@10 within .1 of", "nDCG@10>=-1"], "not a requirement"),
        (["P@10>=.1", "foo:MAP@100 within .01 of x.trec", "nDCG@0>=.1", f"nDCG@{2**64}>=.1"], "There is no measure"),
        (["nDCG@10>=40", "MRR@10 within 5 of x.trec"], "lies between 0 and 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_required_is_refused(texts, sentence):
    for text in texts:
        with pytest.raises(UsageError, match=sentence):
            gates.parse(text)


def test_a_baseline_of_other_queries_is_refused():
    run = Run("other", {"q1": {"d1": 1.0}})
    qrels = {query: {"d1": 1} for query in ("q1", "q2", "a1", "a2")}
    (remark,) = judgements.absent_from_run(run, ["q1", "q2"], qrels)
    assert remark == "The run other has no results for 1 of 2 queries; it counts 0."
    with pytest.raises(UsageError, match="none of the 2 queries, such as 'a1'"):
        judgements.absent_from_run(run, ["a1", "a2"], qrels)


def test_a_run_of_another_corpus_is_refused_though_its_queries_have_the_same_ids(saved):
    ids = [*Judged().qrels()]
    other = Run("other", {query: {"x1": 2.0, "x2": 1.0} for query in ids})
    runs.write(other, saved)
    gate = gates.parse(f"MRR@10 within .01 of {saved}")
    for refuse in (
        lambda: judgements.absent_from_run(other, ids, Judged().qrels()),
        lambda: gates.check_before([gate], ["hybrid"], "hybrid", ids, Judged().qrels()),
        lambda: gates.verdict(gate, experiment({query: {"a": 1.0} for query in ids}), Judged()),
    ):
        with pytest.raises(UsageError, match="'x1' for 'q0': it is of another corpus"):
            refuse()
    one_judged = Run("poor", {**other.scores, "q5": {"x1": 2.0, "a": 1.0}})
    for poor, queries in ((one_judged, ids), (other, ids[:4])):  # of four queries a poor run may find nothing judged
        assert judgements.absent_from_run(poor, queries, Judged().qrels()) == []


def test_what_gates_look_at_has_to_be_in_the_table():
    plain, named = gates.parse("nDCG@10>=.1"), gates.parse("dense:nDCG@10>=.1")
    assert [gates.system_of(gate, ["hybrid", "dense"], "hybrid") for gate in (plain, named)] == ["hybrid", "dense"]
    assert gates.system_of(named, ["weights", "dense"], None) == "dense"
    with pytest.raises(UsageError, match="no system 'foo'"):
        gates.system_of(gates.parse("foo:nDCG@10>=.1"), ["hybrid", "dense"], "hybrid")
    with pytest.raises(UsageError, match=r"(?s)names no system.*'weights:nDCG@10>=\.1'"):
        gates.system_of(plain, ["weights", "dense"], None)


def test_the_interval_is_that_of_student():
    random = np.random.default_rng(0)  # Student's t, 97.5 %, n - 1 degrees of freedom:
    for count, quantile in ((5, 2.7764), (11, 2.2281), (31, 2.0423), (2000, 1.9612)):
        sample = random.normal(size=count)
        low, high = gates.interval(sample)
        assert (high - low) / 2 == pytest.approx(quantile * sample.std(ddof=1) / np.sqrt(count), rel=0.01)
        assert (high + low) / 2 == pytest.approx(sample.mean())


@dataclass
class Judged:
    """A data set of six queries, and others without a relevant document."""

    relevant_from: int = 1
    others: int = 0

    def qrels(self):
        nothing = {f"none{number}": {"a": 0} for number in range(self.others)}
        return {f"q{number}": {"a": 1} for number in range(6)} | nothing


def experiment(scores):
    return Experiment("set:test", tuple(scores), "BM25", (), {"hybrid": Run("hybrid", scores)}, default="hybrid")


def good_and_worse(path, judged):
    """Two rankings of every query; the good one is saved as a run."""
    good, worse = (dict.fromkeys(judged.qrels(), ranked) for ranked in ({"a": 2.0, "b": 1.0}, {"b": 2.0, "a": 1.0}))
    runs.write(Run("saved", good), path)
    return good, worse


@pytest.fixture
def saved(tmp_path):
    """The path of a saved run."""
    return tmp_path / "saved.trec"


def test_queries_without_a_relevant_document_do_not_hide_a_loss(saved):
    """Both systems have 0 there: a hundred of them would make the mean of a clear loss small, and its interval narrow."""
    judged = Judged(others=200)
    good, worse = good_and_worse(saved, judged)
    gate = gates.parse(f"nDCG@10 within .05 of {saved}")
    against = gates.compare(experiment(worse), experiment(good), judged, 0.05, "live")
    for verdict in (gates.verdict(gate, experiment(worse), judged), against):
        assert not verdict.met
        assert "(6 queries)" in verdict.reason
    assert gates.compare(experiment(good), experiment(good), judged, 0.0, "live").met
    assert not gates.compare(experiment(good | {"q0": worse["q0"]}), experiment(good), judged, 0.0, "live").met


@pytest.mark.parametrize("measure", ["nDCG@10", "ndcg@10"])
def test_a_query_with_low_grades_alone_counts_for_ndcg_in_whatever_case_it_is_written(saved, measure):
    judged = Judged(relevant_from=2)
    _, worse = good_and_worse(saved, judged)
    assert "(6 queries)" in gates.verdict(gates.parse(f"{measure} within .05 of {saved}"), experiment(worse), judged).reason
    [remark] = judgements.without_relevant(judged.qrels(), 2)
    assert remark.endswith("(from grade 2): MRR and recall of all systems are 0 there.")
    [remark] = judgements.without_relevant({"q": {"a": 0}}, 1)
    assert remark.endswith("all systems get 0 there.")


def test_a_gate_within_a_margin_opens_neither_by_weakness_nor_by_another_run(saved):
    good, worse = good_and_worse(saved, Judged())
    gate = gates.parse(f"MRR@10 within .01 of {saved}")
    assert gates.verdict(gate, experiment(good), Judged()).met
    assert not gates.verdict(gate, experiment(worse), Judged()).met
    assert "too few" in gates.verdict(gate, experiment({query: good[query] for query in ("q0", "q1")}), Judged()).reason
    runs.write(Run("saved", {"other": {"a": 1.0}}), saved)
    with pytest.raises(UsageError, match="has no results for 6 of 6 queries"):
        gates.verdict(gate, experiment(good), Judged())
    with pytest.raises(UsageError, match="has no results for 6 of 6 queries"):
        gates.check_before([gate], ["hybrid"], "hybrid", list(good), Judged().qrels())
