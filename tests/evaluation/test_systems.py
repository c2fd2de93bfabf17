"""What a table compares, and with what."""

import pytest

from termweave import corpora
from termweave.catalog.profiles import Profile
from termweave.encoders.manifest import Manifest, write_manifest
from termweave.errors import UsageError
from termweave.evaluation import systems
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from tests.evaluation.conftest import Known, write_set

ALL = Known("dense", "lexical", "weights")


def names(found):
    return [system.name for system in found]


def test_the_default_table_begins_with_bm25_wherever_the_index_has_it():
    assert names(systems.default_systems(ALL)) == ["BM25", "dense", "weights", "hybrid", "hybrid+rNN"]
    assert names(systems.default_systems(Known("lexical"))) == ["BM25"]
    assert names(systems.default_systems(Known("dense"))) == ["dense", "dense+rNN"]


def test_a_profile_that_was_adopted_is_a_row_with_its_own_reranking():
    tuned = Profile("mine", {"dense": 0.7, "weights": 0.3}, "rrf", {"candidates": 30, "k": 5})
    index = Known("dense", "lexical", "weights", profile=tuned)
    row = systems.default_systems(index)[-1]
    assert (row.name, row.mode, row.reranking) == ("mine", "mine", Reranking((ReciprocalNeighbours(candidates=30, k=5),)))
    assert index.mode("mine").fusion == "rrf"
    assert systems.grid(["mine"], ["none"], index)[0].reranking is None
    assert systems.grid(["mine"], ["rnn"], index)[0].reranking == Reranking((ReciprocalNeighbours(candidates=30, k=5),))
    assert systems.default_of(systems.default_systems(index), index) == "mine"
    assert systems.default_of(systems.default_systems(ALL), ALL) == "hybrid"
    rows = systems.grid(["mine"], ["none", "rnn", "rnn@dense"], index)
    assert names(rows) == ["mine without rNN", "mine", "mine+rNN@dense"]
    assert systems.grid(["mine"], [], index) == [row] == systems.with_baseline([row], "mine", index)[0]
    assert systems.default_of(systems.grid(["hybrid", "dense"], [], index), index) is None
    assert systems.default_of(systems.grid(["dense"], [], index), index) == "dense"


def test_a_grid_has_every_mode_with_every_reranker_once():
    found = systems.grid(["hybrid", "lexical", "weights:3,dense:1", "hybrid"], ["none", "rnn", "rnn@dense"], ALL)
    both = ("", "+rNN", "+rNN@dense")
    assert names(found) == [f"{mode}{reranker}" for mode in ("hybrid", "BM25", "weights:3,dense:1") for reranker in both]
    plain, vectors = Reranking((ReciprocalNeighbours(),)), Reranking((ReciprocalNeighbours(similarity="dense"),))
    assert [(row.reranker, row.reranking) for row in found[:3]] == [("none", None), ("rnn", plain), ("rnn@dense", vectors)]
    assert systems.with_baseline(found, "hybrid+rnn@dense", ALL) == (found, "hybrid+rNN@dense")
    assert names(systems.grid([], ["rnn"], ALL)) == ["BM25+rNN", "dense+rNN", "weights+rNN", "hybrid+rNN"]
    assert systems.grid([], [], ALL) == systems.default_systems(ALL)
    with pytest.raises(UsageError, match="no signal 'magic'"):
        systems.grid(["magic"], [], ALL)


def test_the_baseline_is_a_row_that_is_added_where_it_is_missing():
    table, other = systems.default_systems(ALL), "dense:2,weights:1"
    baselines = {None: "BM25", "hybrid": "hybrid", "lexical": "BM25", "HYBRID+rnn": "hybrid+rNN", other: other}
    for asked, baseline in baselines.items():
        found, against = systems.with_baseline(table, asked, ALL)
        assert (against, names(found)) == (baseline, [other] * (asked == other) + names(table))
    assert systems.with_baseline(systems.grid(["dense", "weights"], [], ALL), None, ALL)[1] == "dense"  # without BM25 the first
    for neither, said in (("missing.trec", "cannot be opened"), ("magic", "no signal 'magic'")):
        with pytest.raises(UsageError, match=said):
            systems.with_baseline(table, neither, ALL)


def test_a_baseline_keeps_the_case_of_a_reranker(monkeypatch):
    asked, table = [], systems.grid(["dense"], [], ALL)
    monkeypatch.setattr(ALL, "choose", lambda mode, rerank: asked.append((mode, rerank)) or (None, None))
    for baseline in ("hybrid+ltr@MyModel", "dense+rNN>boost@Votes:0.2", "dense+RNN@dense"):
        systems.with_baseline(table, baseline, ALL)
    assert asked == [("hybrid", "ltr@MyModel"), ("dense", "rnn>boost@Votes:0.2"), ("dense", "rnn@dense")]


def test_a_cross_encoder_that_learned_from_the_judgements_is_said(tmp_path):
    home = write_set(tmp_path / "judged", {"d": "a text"}, {"q": "a question"}, {"q": {"d": 1}})
    (home / "qrels" / "train.tsv").write_text("q\td\t1\n")
    train, test = (corpora.open_dataset(f"{home}:{split}") for split in ("train", "test"))

    def said(measured, **training):
        write_manifest(tmp_path, Manifest("mine", "ranker", ("scores",), "0" * 16, 64, training=training))
        rerankers = [ReciprocalNeighbours(), CrossEncoderReranker(str(tmp_path)), CrossEncoderReranker("no-such-model")]
        return systems.trained_on(rerankers, measured)

    (remark,) = said(train, dataset=str(home), origin="qrels", beside=[])
    assert remark == f"ranker@{tmp_path} was trained on these judgements (judged:train): its gain here proves nothing."
    assert said(test, dataset=f"{home}:test", origin="qrels")
    assert said(train, dataset="other", origin="corpus", beside=[{"dataset": str(home), "origin": "qrels"}])
    assert said(train, dataset="book:docs:all and judged:train")  # as `learn` names what it learned from
    for measured, of in ((test, {"origin": "qrels"}), (train, {"origin": "corpus"})):
        assert not said(measured, dataset=str(home), **of)
    assert not said(train)
