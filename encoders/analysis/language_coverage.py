"""Does a model know the language of a corpus? A cheap check on a sample, by what its tokeniser was made for.

A tokeniser *covers* a script when its vocabulary holds many pieces of several letters in it (the shipped model's: 26,482 Latin, 8
Cyrillic, 2 Arabic), or very many ideographs (244 of thousands): what it writes letter by letter, or as [UNK], the model
has hardly seen. Text in a covered script may still be another language. Where the analysis is for English, two figures tell:

    ==================  ======================  =======================
    the shipped model   English prose, 14 sets  13 other Latin-script
    ==================  ======================  =======================
    function words      .14 to .29              .00 to .03
    pieces a word       1.05 to 1.39            1.73 to 3.21
    ==================  ======================  =======================

Lists of labels hold few function words but whole words (1.1 pieces), so both figures have to speak against English.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Of each text so many characters are looked at.
_CHARACTERS = 2000
#: Pieces of several letters, or ideographs, that make a script covered.
_PIECES, _IDEOGRAPHS = 200, 1000
#: Above this share of unknown words the model is of no use; above the lower one it is said.
_USELESS, _WORTH_SAYING = 0.5, 0.1
#: Function words that few other languages write the same.
_ENGLISH = frozenset(["the", "of", "and", "is", "to", "for", "with", "that", "are", "by", "this", "it", "not", "be", "was"])
_FEWEST_ENGLISH, _MOST_PIECES = 0.1, 1.5
#: Fewer words are no evidence for or against a language.
_ENOUGH_WORDS = 50
#: Unicode's first word of a character's name -> script, where it is not just that word.
_CJK = frozenset(["CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"])
#: The OpenSearch analyzer for a script that one language (or family) writes; `standard` cuts words and alters nothing.
_ANALYZERS = {"CJK": "cjk", "Thai": "thai", "Greek": "greek", "Armenian": "armenian", "Bengali": "bengali"}

Verdict = Literal["known", "mixed", "foreign"]


@dataclass(frozen=True, slots=True)
class Familiarity:
    """What a model's tokeniser makes of a sample.

    Attributes:
        words: Looked at; what holds no letter does not count.
        unknown: Share of words in scripts that are not covered, or that become [UNK].
        script: The script with the most words: "Latin", "CJK", "Arabic" ...; None where there are no words.
        strange: The script with the most unknown words where it is not covered; else None: what is unknown are pieces of a known script.
        english: Share of English function words.
        pieces: Word-pieces a word.
        language: The language of the model's analysis, if it is for one.
    """

    words: int
    unknown: float
    script: str | None
    strange: str | None
    english: float
    pieces: float
    language: str | None

    @property
    def verdict(self) -> Verdict:
        """Whether the model knows this text: "mixed" is in part, "foreign" is no."""
        if self.unknown > _USELESS or self._looks_foreign:
            return "foreign"
        return "mixed" if self.unknown > _WORTH_SAYING else "known"

    @property
    def analyzer(self) -> str:
        """The OpenSearch analyzer that does such text no harm; "english" unless something speaks against it."""
        if self.script in {None, "Latin"}:
            return "standard" if self._looks_foreign else "english"
        return _ANALYZERS.get(self.script or "", "standard")

    @property
    def reason(self) -> str:
        """One clause for a message."""
        if self.unknown > _WORTH_SAYING:
            where = f"in a script ({self.strange}) that it was not made for" if self.strange else "unknown to it"
            return f"{self.unknown:.0%} of the words are {where}"
        return f"it does not look like English ({self.english:.0%} function words, {self.pieces:.1f} word-pieces a word)"

    @property
    def _looks_foreign(self) -> bool:
        return (
            self.language == "English"
            and self.words >= _ENOUGH_WORDS
            and self.english < _FEWEST_ENGLISH
            and self.pieces > _MOST_PIECES
        )


def familiarity(texts: Sequence[str], tokenizer: Any, language: str | None) -> Familiarity:
    """Look at a sample.

    Args:
        texts: Some hundred texts of a corpus.
        tokenizer: The model's, a `tokenizers.Tokenizer`.
        language: Of the model's analysis (`Analysis.language`).
    """
    covered = _covered(tokenizer.get_vocab(with_added_tokens=False))
    if language == "Chinese":
        covered |= {"CJK"}
    unknown_token = tokenizer.model.unk_token
    words = pieces = english = 0
    scripts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    clipped = [text[:_CHARACTERS] for text in texts]
    for text, encoding in zip(clipped, tokenizer.encode_batch(clipped, add_special_tokens=False), strict=True):
        for (start, end), tokens in _words(encoding):
            written = text[start:end].lower()
            letter = next((character for character in written if character.isalpha()), None)
            if letter is None:
                continue
            words += 1
            pieces += len(tokens)
            english += written in _ENGLISH
            script = _script(letter)
            scripts[script] += 1
            unknown[script] += script not in covered or tokens == [unknown_token]
    count = max(words, 1)
    main = next((script for script, _ in scripts.most_common()), None)
    strange = next((script for script, many in unknown.most_common(1) if many and script not in covered), None)
    return Familiarity(words, unknown.total() / count, main, strange, english / count, pieces / count, language)


def _words(encoding: Any) -> list[tuple[tuple[int, int], list[str]]]:
    """Offsets and pieces of each word of the tokeniser."""
    found: list[tuple[tuple[int, int], list[str]]] = []
    last = None
    for word, (start, end), token in zip(encoding.word_ids, encoding.offsets, encoding.tokens, strict=True):
        if word == last:
            (first, _), tokens = found[-1]
            found[-1] = ((first, end), [*tokens, token])
        else:
            found.append(((start, end), [token]))
        last = word
    return found


def _covered(vocabulary: Mapping[str, int]) -> set[str]:
    several: Counter[str] = Counter()
    ideographs = 0
    for piece in vocabulary:
        letters = piece.removeprefix("##")
        if letters and letters[0].isalpha():
            script = _script(letters[0])
            several[script] += len(letters) > 1
            ideographs += script == "CJK" and not piece.startswith("##")
    if not several.total():  # a vocabulary of characters, as backbones from scratch have: it reads what it has letters of
        return {*several}
    found = {script for script, count in several.items() if count >= _PIECES}
    return found | {"CJK"} if ideographs >= _IDEOGRAPHS else found


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> str:
    """The script of a letter, by its Unicode name: "Latin", "CJK" (Chinese, Japanese, Korean), "Arabic" ..."""
    first = unicodedata.name(letter, "OTHER").split()[0]
    return "CJK" if first in _CJK else first.capitalize()
