"""What a fit starts from and keeps, and the hidden states that two runs share."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Pairs
from termweave.training.methods import base as methods
from termweave.training.term_weights import hidden_states as making_of_states
from termweave.training.term_weights.hidden_states import states
from termweave.training.term_weights.model import TermWeightInputs, prepare
from termweave.training.trainer.trainer import Fit, fit
from tests.training.conftest import read_by

METHOD = methods.get("fectek")
SETTINGS = METHOD.settings({"steps": 120, "every": 120, "batch": 16, "rate": 5e-3, "negatives": 10})


@pytest.fixture
def material(toy, base, model, tmp_path):
    documents, questions, relevant = toy
    analysis, _, statistics, bm25 = common = read_by(base, documents)
    given, asked = prepare(documents, *common, "document", 64), prepare(questions, *common, "query", 64)
    index = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    return TermWeightInputs(
        1.0,
        Pairs(questions, relevant),
        *(replace(each, states=states(model, "toy", each.pieces, home=tmp_path / "states")) for each in (given, asked)),
        index.negatives(bm25_weights(questions, analysis, statistics, bm25, "query"), relevant, 10),
        statistics,
    )


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
