"""The method on a toy collection where context decides and BM25 cannot."""

import numpy as np
import pytest
import torch

from termweave.encoders import load
from termweave.encoders.analysis import Analysis
from termweave.encoders.anchor import BM25
from termweave.encoders.export import export
from termweave.encoders.pieces import PieceTokenizer
from termweave.encoders.weighting import dot
from termweave.training.anchored import Material, Options, batch_scores, contrast, draw, mine, prepare, train
from termweave.training.pairs import Pairs, count
from termweave.training.sparse import SparseIndex, bm25_weights
from termweave.training.states import states


@pytest.fixture
def material(toy, base, model, tmp_path):
    documents, questions, relevant = toy
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    statistics = count([documents], analysis)
    given = prepare(documents, analysis, tokenizer, statistics, BM25(), "document", 64)
    asked = prepare(questions, analysis, tokenizer, statistics, BM25(), "query", 64)
    return Material(
        "toy",
        1.0,
        Pairs(questions, relevant),
        given,
        asked,
        states(model, "toy", given.pieces, home=tmp_path / "states"),
        states(model, "toy", asked.pieces, home=tmp_path / "states"),
        mine(questions, documents, relevant, analysis, statistics, BM25(), 10),
    )


def test_untrained_scores_are_bm25(model, material, toy, base):
    documents, questions, _ = toy
    analysis = Analysis(PieceTokenizer(base / "tokenizer.json").tokenizer)
    statistics = count([documents], analysis)
    with torch.no_grad():
        scores = batch_scores(model.heads, material, np.arange(len(questions)), np.arange(40)).numpy()
    index = SparseIndex(bm25_weights(documents[:40], analysis, statistics, BM25(), "document"))
    expected = [index.scores(query) for query in bm25_weights(questions, analysis, statistics, BM25(), "query")]
    assert scores == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.slow
def test_training_improves_on_its_start_and_serves_what_it_learned(model, material, toy, trained_folder, base):
    documents, questions, relevant = toy
    losses = train(model.heads, [material], Options(steps=120, questions=16, learning_rate=5e-3))
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:10])

    folder = trained_folder(model)
    export(folder)
    analysis = Analysis(PieceTokenizer(base / "tokenizer.json").tokenizer)
    statistics = count([documents], analysis)
    encoder = load(str(folder), str(folder), threads=2, precision="fp32")
    found = [each.weights for each in encoder.encode(documents, kind="document", statistics=statistics)]
    asked = [each.weights for each in encoder.encode(questions, kind="query", statistics=statistics)]

    def precision(index, queries):
        """At the number of relevant documents."""
        hits = [
            len(known & set(index.search(query, len(known))[0].tolist())) / len(known)
            for query, known in zip(queries, relevant, strict=True)
            if known
        ]
        return float(np.mean(hits))

    before = precision(SparseIndex(bm25_weights(documents, analysis, statistics, BM25(), "document")), asked)
    assert precision(SparseIndex(found), asked) > before + 0.2

    # What training scored is what the exported model scores (states were int8, hence the tolerance).
    with torch.no_grad():
        scores = batch_scores(model.heads, material, np.arange(8), np.arange(20)).numpy()
    served = np.array([[dot(query, document) for document in found[:20]] for query in asked[:8]])
    assert np.corrcoef(scores.ravel(), served.ravel())[0, 1] > 0.99


def test_the_same_seed_trains_the_same_heads(model, material):
    start = {name: tensor.clone() for name, tensor in model.heads.state_dict().items()}
    first = train(model.heads, [material], Options(steps=5, questions=8))
    model.heads.load_state_dict(start)
    assert train(model.heads, [material], Options(steps=5, questions=8)) == first


def test_the_loss_of_the_worked_example():
    scores = 0.3 * torch.tensor([[3.0, 1.0]])
    loss = contrast(scores, [frozenset({0})], np.array([0]), np.array([0, 1]))
    assert float(loss) == pytest.approx(0.437, abs=1e-3)


def test_other_relevant_documents_are_no_negatives():
    scores = torch.tensor([[1.0, 100.0, 0.0]])
    loss = contrast(scores, [frozenset({4, 7})], np.array([0]), np.array([4, 7, 9]))
    assert float(loss) == pytest.approx(float(np.log1p(np.exp(-1))), abs=1e-6)


def test_a_batch_begins_with_the_relevant_documents(material):
    questions, documents = draw(material, 8, np.random.default_rng(0))
    for question, document in zip(questions.tolist(), documents.tolist(), strict=False):
        assert document in material.pairs.relevant[question]
    for question, negatives in enumerate(material.negatives):
        assert not material.pairs.relevant[question] & set(negatives.tolist())


def test_states_are_computed_once(model, base, tmp_path, monkeypatch):
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada", "mortar"], 64)
    first = states(model, "toy", pieces, home=tmp_path)
    monkeypatch.setattr("termweave.training.states._compute", lambda *_: pytest.fail("computed again"))
    again = states(model, "toy", pieces, home=tmp_path)
    assert np.array_equal(first.values, again.values)
    assert first.values.shape == (sum(len(each.ids) for each in pieces), 64)
    assert not list(tmp_path.glob("*.partial"))
