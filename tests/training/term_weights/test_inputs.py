"""Training on a toy collection where context decides and BM25 cannot: one loop, one collection or several."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders import load
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import Analysis
from termweave.encoders.onnx.export import export
from termweave.encoders.term_weighting import BM25
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Pairs, count
from termweave.training.data.sampler import AnsweredQuestions, Batch, BatchSampler
from termweave.training.methods import base as methods
from termweave.training.term_weights import hidden_states as making_of_states
from termweave.training.term_weights.hidden_states import states
from termweave.training.term_weights.preparation import TermWeightInputs, prepare
from termweave.training.trainer.trainer import Fit, fit
from tests.encoders.exact_scores import dot

METHOD = methods.get("fectek")
SETTINGS = METHOD.settings({"steps": 120, "every": 120, "batch": 16, "rate": 5e-3, "negatives": 10})


@pytest.fixture
def material(toy, base, model, tmp_path):
    documents, questions, relevant = toy
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    statistics = count([documents], analysis)
    given = prepare(documents, analysis, tokenizer, statistics, BM25(), "document", 64)
    asked = prepare(questions, analysis, tokenizer, statistics, BM25(), "query", 64)
    index = SparseIndex(bm25_weights(documents, analysis, statistics, BM25(), "document"))
    return TermWeightInputs(
        1.0,
        Pairs(questions, relevant),
        *(replace(each, states=states(model, "toy", each.pieces, home=tmp_path / "states")) for each in (given, asked)),
        index.negatives(bm25_weights(questions, analysis, statistics, BM25(), "query"), relevant, 10),
        statistics,
    )


def scored(model, material, questions, documents):
    objective = Fit(METHOD, model, [material], SETTINGS)
    batch = Batch(material, AnsweredQuestions(np.arange(questions), np.arange(documents), np.arange(documents)))
    with torch.no_grad():
        weights = [
            METHOD.weights(objective, side, METHOD.features(objective, side, METHOD.encode(objective, side)[0]))
            for side in METHOD.both_sides(objective, batch, everything=False)
        ]
        return (weights[0] @ weights[1].T).numpy()


def test_untrained_scores_are_bm25(model, material, toy, base):
    documents, questions, _ = toy
    analysis = Analysis(PieceTokenizer(base / "tokenizer.json").tokenizer)
    index = SparseIndex(bm25_weights(documents[:40], analysis, material.statistics, BM25(), "document"))
    expected = [index.scores(query) for query in bm25_weights(questions, analysis, material.statistics, BM25(), "query")]
    assert scored(model, material, len(questions), 40) == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.slow
def test_training_improves_on_its_start_and_serves_what_it_learned(model, material, toy, trained_folder, base, tmp_path):
    documents, questions, relevant = toy
    seen = []
    objective = Fit(METHOD, model, [material], SETTINGS)
    fit(objective, lambda: float(len(seen)), tmp_path / "run", say=seen.append)

    folder = trained_folder(model)
    export(folder)
    analysis = Analysis(PieceTokenizer(base / "tokenizer.json").tokenizer)
    encoder = load(str(folder), str(folder), threads=2, precision="fp32")
    found = [each.weights for each in encoder.encode(documents, kind="document", statistics=material.statistics)]
    asked = [each.weights for each in encoder.encode(questions, kind="query", statistics=material.statistics)]

    def precision(index, queries):
        """At the number of relevant documents."""
        hits = [
            len(known & set(index.search(query, len(known))[0].tolist())) / len(known)
            for query, known in zip(queries, relevant, strict=True)
            if known
        ]
        return float(np.mean(hits))

    before = precision(SparseIndex(bm25_weights(documents, analysis, material.statistics, BM25(), "document")), asked)
    assert precision(SparseIndex(found), asked) > before + 0.2

    # What training scored is what the exported model scores (states were int8, hence the tolerance).
    served = np.array([[dot(query, document) for document in found[:20]] for query in asked[:8]])
    assert np.corrcoef(scored(model, material, 8, 20).ravel(), served.ravel())[0, 1] > 0.99


def test_batches_come_from_the_collections_by_their_shares(model, material):
    other = replace(material, share=3.0)
    sampler = BatchSampler(METHOD, [material, other], replace(SETTINGS, drawn=2))
    drawn = [sampler.draw(step) for step in range(200)]
    assert 0.65 < np.mean([batch.inputs is other for batch in drawn]) < 0.85
    twin = BatchSampler(METHOD, [material, other], replace(SETTINGS, drawn=2))
    for step, batch in enumerate(drawn[:5]):
        again = twin.draw(step)
        assert batch.inputs is again.inputs
        assert (batch.drawn.questions == again.drawn.questions).all()
        assert (batch.drawn.documents == again.drawn.documents).all()
    batch = drawn[0].drawn
    for place, document in enumerate(batch.documents.tolist()):
        right = document in material.pairs.relevant[batch.questions[batch.owner[place]]]
        assert right == (place < len(batch.questions))
    assert (np.bincount(batch.owner)[: len(batch.questions)] == 3).all()  # its answer and two hard negatives


@pytest.mark.parametrize("keep", [0.0, 0.25])
def test_a_share_of_the_start_is_in_what_is_judged_and_kept(model, material, tmp_path, keep):
    settings = replace(SETTINGS, keep=keep, steps=6, every=2)
    objective, passed, looked = Fit(METHOD, model, [material], settings), [], []

    def judge():
        looked.append(objective.heads.document.outer.weight.detach().clone())
        return float(len(looked))

    objective.register_forward_pre_hook(lambda *_: passed.append(objective.heads.document.outer.weight.detach().clone()))
    fit(objective, judge, tmp_path)
    expected = [keep * passed[0] + (1 - keep) * after for after in passed]
    assert torch.allclose(looked[0], expected[0])
    assert torch.allclose(looked[1], expected[2], atol=1e-6)
    assert torch.allclose(looked[2], expected[4], atol=1e-6)
    assert torch.equal(objective.heads.document.outer.weight, looked[3])  # the best look's parameters


def test_states_are_computed_once(model, base, tmp_path, monkeypatch):
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada", "mortar"], 64)
    first = states(model, "toy", pieces, home=tmp_path)
    monkeypatch.setattr("termweave.training.term_weights.hidden_states._compute", lambda *_: pytest.fail("computed again"))
    again = states(model, "toy", pieces, home=tmp_path)
    assert np.array_equal(first.values, again.values)
    assert first.values.shape == (sum(len(each.ids) for each in pieces), 64)
    assert not list(tmp_path.glob("*.partial"))


def test_two_runs_that_want_the_same_states_share_the_work(model, base, tmp_path, monkeypatch):
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada", "mortar"], 64)
    compute, calls, waiting = making_of_states._compute, [], threading.Event()

    def slowly(*given):
        calls.append(given)
        assert waiting.wait(60)
        compute(*given)

    monkeypatch.setattr(making_of_states, "_compute", slowly)
    with ThreadPoolExecutor(2) as runs:
        both = [runs.submit(states, model, "toy", pieces, home=tmp_path, say=lambda _: waiting.set()) for _ in range(2)]
        first, second = (run.result() for run in both)
    assert len(calls) == 1
    assert np.array_equal(first.values, second.values)
    assert [each.name for each in tmp_path.iterdir()] == [next(tmp_path.glob("*/done.json")).parent.name]
