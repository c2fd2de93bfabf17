"""Questions that share an answer are held out together, where that is possible."""

from termweave.training.data.dataset import _held_out
from termweave.training.data.pairs import Pairs

SETTINGS = {"dev": 300, "seed": 0}


def test_no_answer_is_trained_on_and_held_out():
    every = Pairs([f"question {n}" for n in range(200)], [frozenset({n // 4}) for n in range(200)])
    train, dev, kept = _held_out(every, SETTINGS)
    assert len(train) + len(dev) == 200
    assert len(dev) == 20
    assert [every.questions[place] for place in kept] == train.questions
    assert not set().union(*train.relevant) & set().union(*dev.relevant)
    other = _held_out(every, {"dev": 300, "seed": 1})[1]
    assert other.questions != dev.questions


def test_other_views_of_a_held_out_document_are_not_trained_on():
    relevant = [frozenset({n}) for n in range(100)]
    spared = [frozenset({n ^ 1}) for n in range(100)]  # two views of each document
    train, dev, _ = _held_out(Pairs([f"q{n}" for n in range(100)], relevant, spared=spared), SETTINGS)
    assert not {place // 2 for known in train.relevant for place in known} & {
        place // 2 for known in dev.relevant for place in known
    }


def test_where_all_questions_hang_together_they_are_drawn_one_by_one():
    chain = Pairs([f"q{n}" for n in range(100)], [frozenset({n, n + 1}) for n in range(100)])
    train, dev, _ = _held_out(chain, SETTINGS)
    assert (len(train), len(dev)) == (90, 10)
