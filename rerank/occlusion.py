"""Find the words of a text that a ranker's logit depends on most: leave each word out, and score the text again.

    effect of a word = logit of the text - logit of the text without the word, at all of its places

A positive effect means that the word makes the document look relevant to the ranker. Words act together, so the effects do not sum to the logit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Score = Callable[[Sequence[str]], Sequence[float]]

#: Words that are returned, and words that are left out one by one.
SHOWN, _TRIED = 10, 64
#: Parts in which a text with more different words is searched first.
_PARTS = 16
#: CJK ideographs are words of one character.
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+(?:['\u2019-][^\W{_CJK}]+)*")


def places(text: str) -> dict[str, list[tuple[int, int]]]:
    """Find the words of a text: word in lower case -> start and end of each of its occurrences, in characters.

    Example:
        >>> places("A cat, a dog")
        {'a': [(0, 1), (7, 8)], 'cat': [(2, 5)], 'dog': [(9, 12)]}
    """
    words: dict[str, list[tuple[int, int]]] = {}
    for match in _WORD.finditer(text):
        words.setdefault(match[0].lower(), []).append(match.span())
    return words


def effects(text: str, score: Score) -> list[dict[str, Any]]:
    """The ten words whose omission changes the logit most, up or down, largest change first: ``{"word", "effect"}``.

    If a text has more than 64 different words, only words from those parts are tried whose omission changes the logit most.

    Args:
        text: The text, short enough for the ranker to read all of it.
        score: Computes the ranker's logits of texts for the query.
    """
    words = places(text)
    (whole,) = score([text])
    if len(words) > _TRIED:
        words = _of_the_weightiest_parts(text, words, whole, score)
    without = score([_without(text, spans) for spans in words.values()]) if words else []
    changes = sorted(((word, whole - logit) for word, logit in zip(words, without, strict=True)), key=lambda each: -abs(each[1]))
    return [{"word": word, "effect": effect} for word, effect in changes[:SHOWN]]


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text without the parts at these spans (start, end)."""
    ends, starts = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _of_the_weightiest_parts(
    text: str, words: dict[str, list[tuple[int, int]]], whole: float, score: Score
) -> dict[str, list[tuple[int, int]]]:
    """Choose at most 64 words: those in the parts of the text whose omission changes the logit most."""
    spans = sorted((start, end, word) for word, each in words.items() for start, end in each)
    size = -(-len(spans) // _PARTS)
    parts = [spans[first : first + size] for first in range(0, len(spans), size)]
    logits = score([_without(text, [(part[0][0], part[-1][1])]) for part in parts])
    ranked = sorted(range(len(parts)), key=lambda place: (-abs(whole - logits[place]), place))
    chosen = dict.fromkeys(word for place in ranked for _, _, word in parts[place])
    return {word: words[word] for word in list(chosen)[:_TRIED]}
