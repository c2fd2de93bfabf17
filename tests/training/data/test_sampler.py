"""Epochs are passes: every question once in each, in batches that do not depend on what was drawn before."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.training.data.pairs import Pairs
from termweave.training.data.sampler import BatchSampler
from termweave.training.methods import base as methods
from termweave.training.ranker.first_stage import CandidateLists

QUESTIONS, BATCH, EPOCHS = 11, 4, 5


def data(count=QUESTIONS, shares=None):
    """Questions that each have a document of their own, as each kind of model reads them."""
    lists = CandidateLists(np.arange(count)[:, None], np.zeros((count, 1, 1), np.float32))
    return SimpleNamespace(
        share=1.0,
        pairs=Pairs([str(n) for n in range(count)], [frozenset({n}) for n in range(count)], shares),
        negatives=[np.zeros(0, np.int64)] * count,
        documents=range(count),
        lists=lists,
    )


def sampler(name, *inputs, **given):
    """The sampler of a method with as many steps as its settings ask for."""
    settings = methods.get(name).settings({"batch": BATCH, "epochs": EPOCHS, "steps": 1, **given})
    settings = replace(settings, steps=settings.steps_of(len(inputs[0].pairs), 1 / len(inputs)))
    return BatchSampler(methods.get(name), inputs, settings)


def questions_of(batch):
    """The questions of a batch of any method."""
    drawn = batch.drawn if isinstance(batch.drawn, np.ndarray) else getattr(batch.drawn, "queries", None)
    return (batch.drawn.questions if drawn is None else drawn).tolist()


def joined(batches):
    """The questions of some batches, one after the other."""
    return [question for batch in batches for question in batch]


@pytest.mark.parametrize("name", ["fectek", "bert-scorer", "sir", "coder", "le-bs"])
def test_every_pass_has_every_question_once(name):
    drawn = sampler(name, data())
    per_pass = math.ceil(QUESTIONS / BATCH)
    assert len(drawn) == EPOCHS * per_pass
    batches = [questions_of(drawn[number]) for number in range(len(drawn))]
    passes = [joined(batches[first : first + per_pass]) for first in range(0, len(batches), per_pass)]
    assert all(sorted(each) == list(range(QUESTIONS)) for each in passes)
    assert len({tuple(each) for each in passes}) == EPOCHS  # each in another order
    again = sampler(name, data())  # as a resumed run, which begins in the middle of a pass
    assert [questions_of(again[number]) for number in range(7, len(again))] == batches[7:]


def test_random_documents_fill_a_block_of_nearly_the_whole_collection():
    drawn = sampler("sir", data(), variant="random", anchor=False, blocks="10", candidates=20)
    for number in range(len(drawn)):
        batch = drawn[number].drawn
        for question, block in zip(batch.questions.tolist(), batch.documents.tolist(), strict=True):
            assert block[0] == question
            assert len(set(block)) == 10
            assert min(block) >= 0


def test_each_data_set_has_passes_of_its_own():
    inputs = (data(), data(6))
    drawn = sampler("fectek", *inputs)
    batches = [drawn[number] for number in range(len(drawn))]
    for place, count in enumerate((QUESTIONS, 6)):
        own = [questions_of(each) for each in batches if each.inputs is inputs[place]]
        per_pass = math.ceil(count / BATCH)
        whole = [joined(own[first : first + per_pass]) for first in range(0, len(own) - per_pass + 1, per_pass)]
        assert len(whole) >= 2
        assert all(sorted(each) == list(range(count)) for each in whole)


def test_questions_of_a_click_log_are_drawn_by_their_shares_and_steps_draw_anew():
    shares = np.array([0.7, 0.3, *[0.0] * (QUESTIONS - 2)])
    drawn = sampler("fectek", data(shares=shares))
    assert all(sorted(questions_of(drawn[number])) == [0, 1] for number in range(len(drawn)))
    drawn = sampler("fectek", data(), epochs=-1, steps=9)
    seen = joined(questions_of(drawn[number]) for number in range(9))
    assert len(seen) == 9 * BATCH  # no batch is smaller
    assert np.ptp(np.bincount(seen, minlength=QUESTIONS)) > 1  # some more often than others
