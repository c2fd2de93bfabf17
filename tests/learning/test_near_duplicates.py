"""Near duplicates are found whatever their spelling, and questions that share a form are told apart."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import log

import pytest

from termweave.learning.questions import ALIKE, _words, groups


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "how do i reset my PASSWORD"),
        ("naïve café opening hours", "naive cafe opening hours"),
        ("order 66 status", "status order 66"),
        ("如何修改密码？", "如何修改密码"),
        ("???", "???"),
    ],
)
def test_spellings_of_a_question_are_one_group(one, other):
    others = [f"something else about subject{number} entirely" for number in range(20)]
    assert groups([one, *others, other])[-1] == 0


def test_questions_of_one_form_about_different_things_are_apart():
    """ "What are the symptoms of X" has five common words and one that matters."""
    asked = [f"what are the symptoms of disease{number}" for number in range(200)]
    assert groups(asked) == list(range(200))


def test_groups_are_those_of_comparing_all_pairs():
    """Prefix filtering leaves no pair out."""
    generator = random.Random(1)
    vocabulary = [f"w{number}" for number in range(40)]
    questions = [" ".join(generator.sample(vocabulary, generator.randint(1, 8))) for _ in range(300)]
    sets = [_words(question) for question in questions]
    frequency = Counter(word for words in sets for word in words)
    weight = {word: log(1 + len(sets) / count) for word, count in frequency.items()}

    def weighed(words):
        return sum(weight[word] for word in words)

    number = groups(questions)
    pairs = 0
    for one, other in itertools.combinations(range(300), 2):
        if weighed(sets[one] & sets[other]) >= ALIKE * weighed(sets[one] | sets[other]) + 1e-9:
            pairs += 1
            assert number[one] == number[other]
    assert pairs > 20


def test_a_chain_of_near_duplicates_is_one_group_named_by_its_first():
    words = [f"word{number}" for number in range(30)]
    chain = [" ".join(words[start : start + 20]) for start in range(4)]
    assert groups(["unrelated question", *chain]) == [0, 1, 1, 1, 1]
