"""Groups of questions that say nearly the same, so that a split never has one in its training part and its twin in its test part."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from math import fsum, log
from typing import TYPE_CHECKING

from termweave.evaluation.book.reader import folded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Questions are near duplicates if they share at least this part of the weight of their words (Jaccard similarity weighted by idf).
ALIKE = 0.7
_WORD = re.compile(r"\w+")
#: Scripts that put no space between words are compared by pairs of characters.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]+")


def groups(questions: Sequence[str]) -> list[int]:
    """Number the groups of near duplicates.

    Two questions are in one group if their words are alike, directly or through other questions. Rare words count more, as idf has
    it: "symptoms of asthma" is not "symptoms of anaemia". Pairs are found by prefix filtering (Bayardo et al., WWW 2007): sets with a
    weighted Jaccard similarity of at least t share one of the rarest words that hold a part of 1 - t of their weight.

    Args:
        questions: Texts of the questions.

    Returns:
        For each question the index of the first question of its group.

    Example:
        >>> groups(["How do I reset my password?", "how do i reset my password", "Where is my order?"])
        [0, 0, 2]
    """
    sets = [_words(question) for question in questions]
    frequency = Counter(word for words in sets for word in words)
    weight = {word: log(1 + len(sets) / count) for word, count in frequency.items()}
    total = [fsum(map(weight.__getitem__, words)) for words in sets]  # the same in whatever order a set has its words
    group = _Groups(len(sets))
    same: dict[frozenset[str], int] = {}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for place, words in enumerate(sets):
        if (earlier := same.setdefault(words, place)) != place:
            group.join(place, earlier)
            continue
        prefix = _prefix(words, weight, (1 - ALIKE) * total[place])
        for other in {each for word in prefix for each in holders[word]}:
            shared = fsum(map(weight.__getitem__, words & sets[other]))
            if shared >= ALIKE * (total[place] + total[other] - shared):
                group.join(place, other)
        for word in prefix:
            holders[word].append(place)
    return [group.first(place) for place in range(len(sets))]


class _Groups:
    """Disjoint sets of question indices (union-find); each set is named by its smallest index."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def first(self, place: int) -> int:
        while self._parent[place] != place:
            self._parent[place] = self._parent[self._parent[place]]
            place = self._parent[place]
        return place

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.first(one), self.first(other)))
        self._parent[high] = low


def _prefix(words: frozenset[str], weight: Mapping[str, float], least: float) -> list[str]:
    """Return as many of the rarest words as together weigh more than `least`."""
    prefix, total = [], 0.0
    for word in sorted(words, key=lambda word: (-weight[word], word)):
        prefix.append(word)
        total += weight[word]
        if total > least:
            break
    return prefix


def _words(text: str) -> frozenset[str]:
    """Return the words of a text without case and accents; a text without words counts as one word."""
    plain = folded(text)
    words = set(_WORD.findall(_UNSPACED.sub(" ", plain)))
    for part in _UNSPACED.findall(plain):
        words.update(part[place : place + 2] for place in range(max(1, len(part) - 1)))
    return frozenset(words or {plain.strip()})
