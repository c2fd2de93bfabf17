"""Guess the language of a text by its function words: seven languages that OpenSearch has a Snowball stemmer and stop words for."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Name of OpenSearch's analyzer -> frequent words of the language. Words that English has, too, are left out.
# ruff: noqa: RUF001 - Russian letters look like Latin ones
# fmt: off
_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "german": "der die das und ist nicht mit ein eine einen den dem des auf für von zu sich auch wird sind als bei im zum werden oder",
        "french": "le la les des est une dans que qui pour pas sur avec sont du ce par plus il elle au aux ou cette ses être",
        "spanish": "el los las una que del por con para es en se su al como más lo está son pero sus este entre cuando",
        "portuguese": "os uma que do da dos das em no na com para por não são ao mais como mas pelo pela à também sua seu é",
        "italian": "il lo gli della del di che per una con non sono nel nella dei delle è al alla si come più anche questo da",
        "dutch": "de het een en van niet dat op met voor zijn wordt ook aan bij naar uit worden deze als maar dan heeft",
        "russian": "и в не на что с по это как для от из к за его она они но так при или мы уже только",
    }.items()
}
# fmt: on
#: Every word -> the languages that have it.
_LANGUAGES: dict[str, tuple[str, ...]] = {
    word: tuple(name for name, words in _WORDS.items() if word in words) for words in _WORDS.values() for word in words
}
#: Words of a text below which nothing is guessed (about four sentences), and the least share of function words.
_ENOUGH, _SHARE = 20, 0.15


#: A run of letters.
LETTERS = re.compile(r"[^\W\d_]+")
#: English function words that few other languages share.
ENGLISH = frozenset(["the", "of", "and", "is", "to", "for", "with", "that", "are", "by", "this", "it", "not", "be", "was"])


def guess_of(text: str) -> str | None:
    """The language of a text, as the name of OpenSearch's analyzer; None: English, or unknown."""
    words = LETTERS.findall(text.lower())
    counts = Counter(language for word in words for language in languages(word))
    return guess(counts, sum(word in ENGLISH for word in words), len(words))


def languages(word: str) -> tuple[str, ...]:
    """The languages that have this function word (in lower case)."""
    return _LANGUAGES.get(word, ())


def guess(counts: Mapping[str, int], english: int, words: int) -> str | None:
    """The language with the most function words; None if there are too few for a guess, or English has as many.

    Args:
        counts: Language -> number of its function words in the text.
        english: Number of English function words.
        words: Number of all words.
    """
    if words < _ENOUGH or not counts:
        return None
    name = max(counts, key=lambda each: counts[each])
    return name if counts[name] >= _SHARE * words and counts[name] > english else None
