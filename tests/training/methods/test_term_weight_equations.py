"""FecTek's and BERT-Scorer's equations, each against worked numbers or an independent, slow version."""

import math

import numpy as np
import pytest
import torch

from termweave.encoders.term_weighting import Form
from termweave.statistics import CorpusStatistics
from termweave.training.data.pairs import Pairs
from termweave.training.data.sampler import AnsweredQuestions, BatchSampler
from termweave.training.methods import base as methods
from termweave.training.methods import bert_scorer, fectek
from termweave.training.term_weights.batch import BatchSide
from termweave.training.term_weights.model import TermWeightInputs, prepare
from termweave.training.trainer.trainer import Fit
from tests.training.conftest import read_by


def test_tfidf_targets_are_those_of_the_worked_numbers(base):
    document = "granada granada " + " ".join(["morino"] * 18)
    analysis, tokenizer, _, bm25 = read_by(base, [document])
    table = CorpusStatistics(
        analysis.id, 1000, 20.0, {analysis.terms(["granada"])[0][0]: 9, analysis.terms(["morino"])[0][0]: 1000}
    )
    common = (analysis, tokenizer, table, bm25)
    given = prepare([document], *common, "document", 64).anchors[0]
    asked = prepare(["granada vexada morino"], *common, "query", 64).anchors[0]
    found = bert_scorer.tfidf(asked, given, table)
    assert found == pytest.approx([0.460517, 0.0, 18 / 20 * math.log(1000 / 1001)], abs=1e-6)
    both = prepare(["granada", "granada vexada"], *common, "query", 64).anchors
    assert bert_scorer.recall(given, both) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("target", ["tfidf", "recall"])
def test_a_batch_without_a_term_teaches_nothing(model, base, target):
    """Stop words and punctuation: the mean error of no piece is not NaN."""
    texts = ["the of and", "... !!!"]
    _, _, statistics, _ = common = read_by(base, texts)
    both = [prepare(texts, *common, kind, 64) for kind in ("document", "query")]
    pairs = Pairs(texts, [frozenset({0}), frozenset({1})])
    method = methods.get("bert-scorer")
    settings = method.settings({"top_layers": -1, "target": target, "batch": 2})
    inputs = [TermWeightInputs(1.0, pairs, *both, [], statistics)]
    loss = Fit(method, model, inputs, settings)(BatchSampler(method, inputs, settings).draw(0))["loss"]
    loss.backward()
    assert float(loss.detach()) == 0


def test_text_loss():
    scores = torch.tensor([[1.0, 2.0, 0.5, -1.0], [0.0, 3.0, 1.5, 2.5]])
    batch = AnsweredQuestions(np.array([0, 1]), np.array([4, 5, 6, 7]), np.array([0, 1, 0, 1]))
    relevant = [frozenset({4, 5}), frozenset({5})]

    def slow(rows):
        return -np.mean([math.log(math.exp(row[0]) / sum(map(math.exp, row))) for row in rows])

    every = fectek.text_loss(scores, fectek.left_out(relevant, batch, in_batch=True))
    assert float(every) == pytest.approx(slow([[1.0, 0.5, -1.0], [3.0, 0.0, 1.5, 2.5]]), abs=1e-6)  # 5 answers question 0 as well
    own = fectek.text_loss(scores, fectek.left_out(relevant, batch, in_batch=False))
    assert float(own) == pytest.approx(slow([[1.0, 0.5], [3.0, 2.5]]), abs=1e-6)


def test_term_loss_and_its_labels(texts):
    documents, questions = texts(Form())
    asked = BatchSide(questions, np.arange(3), {}, "query", everything=True)
    given = BatchSide(documents, np.arange(5), {}, "document", everything=True)
    own, wanted, rows = fectek.of_relevant(torch.randn(len(given.row)), given, asked)
    assert len(own) == (given.row < 3).sum()
    chances = 1 / (1 + np.exp(-own.numpy().astype(np.float64)))
    errors = -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances))
    slow = np.mean([errors[rows == row].mean() for row in (0, 2)])
    some = rows != 1  # a text without a term
    assert float(fectek.term_loss(own[some], wanted[some], rows[some])) == pytest.approx(slow, abs=1e-5)
    assert float(fectek.term_loss(own[:0], np.zeros(0), np.zeros(0))) == 0


def test_distillation():
    scores = torch.tensor([[1.0, 0.0, 9.0], [5.0, 5.0, 5.0], [0.0, 2.0, 1.0]])
    wanted = torch.tensor([[2.0, 1.0, -math.inf], [1.0, -math.inf, -math.inf], [0.0, 2.0, 1.0]])
    teacher, student = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum(), np.exp([1.0, 0.0]) / np.exp([1.0, 0.0]).sum()
    first = float((teacher * np.log(teacher / student)).sum())
    assert float(fectek.distillation(scores, wanted)) == pytest.approx(first / 2, abs=1e-6)  # one unscored, one equal
    assert float(fectek.distillation(scores, torch.full((3, 3), -math.inf))) == 0.0


def test_the_preset_of_the_paper():
    settings = methods.get("fectek").settings({"preset": "paper"})
    names = ("anchor", "hidden", "shared", "fcm", "tkgm", "in_batch", "drawn", "scale", "learn_scale", "top_layers", "terms")
    assert [getattr(settings, name) for name in names] == ["none", 0, True, True, True, False, 15, 1.0, False, -1, "piece"]
    assert settings.schedule == "linear"
    assert settings.max_length == settings.training_length == 192
    again = methods.get("fectek").settings({"preset": "paper", "drawn": "3"})
    assert methods.get("fectek").changed(again) == {"preset": "paper", "drawn": 3}


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ({}, (256, 128)),
        ({"fcm": "true"}, (256, 256)),
        ({"fcm": True, "max_length": 64}, (64, 64)),
        ({"fcm": "yes", "training_length": 96}, (96, 96)),
    ],
)
def test_the_gate_reads_as_much_in_training_as_in_use(given, lengths):
    settings = methods.get("fectek").settings(given)
    assert (settings.max_length, settings.training_length) == lengths
