"""BERT-Scorer's targets against worked numbers and a slow version."""

import math

import pytest

from termweave.statistics import CorpusStatistics
from termweave.training.data.pairs import Pairs
from termweave.training.data.sampler import BatchSampler
from termweave.training.methods import base as methods
from termweave.training.methods import bert_scorer
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
