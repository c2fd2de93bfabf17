"""Whether a model knows the language of a corpus, and which language that is: a cheap check on a sample.

A tokeniser *covers* a script if its vocabulary holds many pieces of several letters in it (the shipped model's: 26,482 Latin, 8
Cyrillic, 2 Arabic), or very many ideographs (244 of thousands). Text that becomes single letters or [UNK] is text that the model
hardly saw in training. Text in a covered script may still be another language. If the analysis is for English, two figures tell:

    ==================  ======================  =======================
    the shipped model   English prose, 14 sets  13 other Latin-script
    ==================  ======================  =======================
    function words      .14 to .29              .00 to .03
    pieces a word       1.05 to 1.39            1.73 to 3.21
    ==================  ======================  =======================

Lists of labels hold few function words but whole words (1.1 pieces), so both figures must speak against English. Which language it is
is guessed by function words, too, among seven languages for which OpenSearch has a Snowball stemmer and stop words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

#: Name of OpenSearch's analyzer -> frequent words of the language. Words that English has, too, are left out.
# ruff: noqa: RUF001 - Russian letters look like Latin ones
# fmt: off
_WORDS = {
    "german": "der die das und ist nicht mit ein eine einen den dem des auf für von zu sich auch wird sind als bei im zum werden oder",
    "french": "le la les des est une dans que qui pour pas sur avec sont du ce par plus il elle au aux ou cette ses être",
    "spanish": "el los las una que del por con para es en se su al como más lo está son pero sus este entre cuando",
    "portuguese": "os uma que do da dos das em no na com para por não são ao mais como mas pelo pela à também sua seu é",
    "italian": "il lo gli della del di che per una con non sono nel nella dei delle è al alla si come più anche questo da",
    "dutch": "de het een en van niet dat op met voor zijn wordt ook aan bij naar uit worden deze als maar dan heeft",
    "russian": "и в не на что с по это как для от из к за его она они но так при или мы уже только",
}
# fmt: on
#: Every word -> the languages that have it.
_LANGUAGES: dict[str, tuple[str, ...]] = {
    word: tuple(name for name, words in _WORDS.items() if word in words.split()) for word in " ".join(_WORDS.values()).split()
}
#: Words of a text below which no language is guessed (about four sentences), and the least share of function words.
_GUESSABLE, _SHARE = 20, 0.15

#: A run of letters.
_LETTERS = re.compile(r"[^\W\d_]+")
#: English function words that few other languages share.
_ENGLISH = frozenset(["the", "of", "and", "is", "to", "for", "with", "that", "are", "by", "this", "it", "not", "be", "was"])

#: Characters of each text that are examined.
_CHARACTERS = 2000
#: Numbers of pieces of several letters, or of ideographs, from which on a script is covered.
_PIECES, _IDEOGRAPHS = 200, 1000
#: Above the first share of unknown words the model is of no use; above the second the user is told.
_USELESS, _WORTH_SAYING = 0.5, 0.1
_FEWEST_ENGLISH, _MOST_PIECES = 0.1, 1.5
#: With fewer words there is no evidence for or against a language.
_ENOUGH_WORDS = 50
#: First words of Unicode names that all mean the script "CJK".
_CJK = frozenset(["CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"])
#: Script of one language (or family) -> its OpenSearch analyzer; `standard` splits words and changes nothing.
_ANALYZERS = {"CJK": "cjk", "Thai": "thai", "Greek": "greek", "Armenian": "armenian", "Bengali": "bengali"}

#: How Unigram and byte-level vocabularies write a blank at the beginning of a piece.
_BLANK, _BYTE_BLANK = "\u2581", "\u0120"
#: A character for private use: no vocabulary holds it.
_PRIVATE = "\ue000"

Verdict = Literal["known", "mixed", "foreign"]


@dataclass(frozen=True, slots=True)
class Familiarity:
    """Figures about a sample of texts that say whether a model's tokeniser covers their language.

    Attributes:
        words: Number of words examined; words without a letter do not count.
        unknown: Share of words in scripts that are not covered, or that become [UNK].
        script: The script with the most words: "Latin", "CJK", "Arabic" ...; None where there are no words.
        strange: The script with the most unknown words, if the tokeniser does not cover that script; else None.
        english: Share of English function words.
        pieces: Word-pieces per word.
        language: The language of the model's analysis; None: the analysis is for no particular language.
        guess: The language to which most function words belong, as the name of OpenSearch's analyzer; None: it is English, or unknown.
    """

    words: int
    unknown: float
    script: str | None
    strange: str | None
    english: float
    pieces: float
    language: str | None
    guess: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the sample: "known", "mixed" (the model does not know a part of the words) or "foreign" (it does not know the language)."""
        if self.unknown > _USELESS or self._looks_foreign:
            return "foreign"
        return "mixed" if self.unknown > _WORTH_SAYING else "known"

    @property
    def analyzer(self) -> str:
        """An OpenSearch analyzer that suits such text; "english" unless something speaks against it."""
        if self.guess is not None and (self.language == self.guess.capitalize() or self.verdict == "foreign"):
            return self.guess
        if self.script in {None, "Latin"}:
            return "standard" if self._looks_foreign else "english"
        return _ANALYZERS.get(self.script or "", "standard")

    @property
    def reason(self) -> str:
        """The reason why the model does not know the text, as a clause for a message."""
        if self.unknown > _WORTH_SAYING:
            where = f"in a script ({self.strange}) that it was not made for" if self.strange else "unknown to it"
            return f"{self.unknown:.0%} of the words are {where}"
        seems = f"it looks like {self.guess.capitalize()}" if self.guess else "it does not look like English"
        return f"{seems}: {self.english:.0%} function words of English, {self.pieces:.1f} word-pieces a word"

    @property
    def doubtful(self) -> bool:
        """Whether the text does not look like the model's language, and has too few words for a verdict."""
        return self.verdict == "known" and 0 < self.words < _ENOUGH_WORDS and self._unlike_english

    @property
    def _looks_foreign(self) -> bool:
        return (self.words >= _ENOUGH_WORDS or self.guess is not None) and self._unlike_english

    @property
    def _unlike_english(self) -> bool:
        return self.language == "English" and self.english < _FEWEST_ENGLISH and self.pieces > _MOST_PIECES


def familiarity(texts: Sequence[str], tokenizer: Any, language: str | None) -> Familiarity:
    """Examine a sample of texts: does a model's tokeniser cover their language?

    Args:
        texts: Some hundred texts of a corpus.
        tokenizer: The model's tokeniser, a `tokenizers.Tokenizer`.
        language: The language of the model's analysis (`Analysis.language`).
    """
    covered = _covered(tokenizer.get_vocab(with_added_tokens=False))
    if language == "Chinese":
        covered |= {"CJK"}
    unknown_id = _unknown_id(tokenizer)
    words = pieces = english = 0
    scripts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    others: Counter[str] = Counter()
    clipped = [text[:_CHARACTERS] for text in texts]
    for text, encoding in zip(clipped, tokenizer.encode_batch(clipped, add_special_tokens=False), strict=True):
        for (start, end), ids in _words(encoding):
            written = text[start:end].strip().lower()
            letter = next((character for character in written if character.isalpha()), None)
            if letter is None:
                continue
            words += 1
            pieces += len(ids)
            english += written in _ENGLISH
            others.update(_LANGUAGES.get(written, ()))
            script = _script(letter)
            scripts[script] += 1
            unknown[script] += script not in covered or ids == [unknown_id]
    count, guessed = max(words, 1), guess(others, english, words)
    main = next((script for script, _ in scripts.most_common()), None)
    strange = next((script for script, many in unknown.most_common(1) if many and script not in covered), None)
    return Familiarity(words, unknown.total() / count, main, strange, english / count, pieces / count, language, guessed)


def analyzer_of(texts: Sequence[str]) -> str:
    """An OpenSearch analyzer that suits some texts, by their script and function words alone; "english" unless something speaks against it.

    Example:
        >>> analyzer_of(["自然语言处理"]), analyzer_of(["Natural language processing."])
        ('cjk', 'english')
    """
    clipped = [text[:_CHARACTERS] for text in texts]
    scripts = Counter(_script(word[0]) for text in clipped for word in _LETTERS.findall(text))
    main = next((script for script, _ in scripts.most_common(1)), "Latin")
    usual = "english" if main == "Latin" else _ANALYZERS.get(main, "standard")
    return guess_of("\n".join(clipped)) or usual


def is_chinese(texts: Iterable[str]) -> bool:
    """Whether most letters of some texts are ideographs, and hardly any are Japanese or Korean.

    Example:
        >>> is_chinese(["自然语言处理"]), is_chinese(["自然言語を処理する"]), is_chinese(["Natural language"])
        (True, False, False)
    """
    letters = [letter for text in texts for letter in text[:_CHARACTERS] if letter.isalpha()]
    names = Counter(unicodedata.name(letter, "OTHER").split()[0] for letter in letters)
    return names["CJK"] > 0.5 * len(letters) and sum(names[name] for name in _CJK - {"CJK"}) < 0.05 * len(letters)


def _words(encoding: Any) -> list[tuple[tuple[int, int], list[int]]]:
    """Offsets and token ids of each word of the tokeniser."""
    words = []
    for _, pieces in groupby(zip(encoding.word_ids, encoding.offsets, encoding.ids, strict=True), key=itemgetter(0)):
        _, offsets, ids = zip(*pieces, strict=True)
        words.append(((offsets[0][0], offsets[-1][1]), list(ids)))
    return words


def _unknown_id(tokenizer: Any) -> Any:
    """The token id that stands for unknown text; None: the tokeniser writes unknown text as bytes.

    A Unigram model does not tell its unknown token. The id is found by encoding a character that no vocabulary holds.
    """
    token = getattr(tokenizer.model, "unk_token", None)
    if token is not None:
        return tokenizer.token_to_id(token)
    encoding = tokenizer.encode(_PRIVATE, add_special_tokens=False)
    return encoding.ids[-1] if encoding.ids and tokenizer.token_to_id(encoding.tokens[-1]) is None else None


def _covered(vocabulary: Mapping[str, int]) -> set[str]:
    """The scripts that a vocabulary covers."""
    from tokenizers.decoders import ByteLevel  # noqa: PLC0415 - compiled libraries load when an encoder does

    several: Counter[str] = Counter()
    ideographs, decoder = 0, ByteLevel()
    of_bytes = any(piece.startswith(_BYTE_BLANK) for piece in vocabulary)
    for piece in vocabulary:
        # A byte-level piece may begin or end inside a character: "\ufffd" stands for such parts.
        letters = piece.removeprefix("##").removeprefix(_BLANK)
        if of_bytes:
            letters = decoder.decode([piece]).replace("\ufffd", "").lstrip()
        if letters and letters[0].isalpha():
            script = _script(letters[0])
            several[script] += len(letters) > 1
            ideographs += script == "CJK" and not piece.startswith("##")
    if not several.total():  # a vocabulary of single characters, as backbones from scratch have: its letters are its scripts
        return {*several}
    scripts = {script for script, count in several.items() if count >= _PIECES}
    return scripts | {"CJK"} if ideographs >= _IDEOGRAPHS else scripts


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> str:
    """The script of a letter, by its Unicode name: "Latin", "CJK" (Chinese, Japanese, Korean), "Arabic" ..."""
    first = unicodedata.name(letter, "OTHER").split()[0]
    return "CJK" if first in _CJK else first.capitalize()


def guess_of(text: str) -> str | None:
    """Guess the language of a text, as the name of OpenSearch's analyzer; None: the text is English, or its language is unknown."""
    words = _LETTERS.findall(text.lower())
    counts = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    return guess(counts, sum(word in _ENGLISH for word in words), len(words))


def guess(counts: Mapping[str, int], english: int, words: int) -> str | None:
    """The language with the most function words; None: there are too few function words for a guess, or English has at least as many.

    Args:
        counts: Language -> number of its function words in the text.
        english: Number of English function words.
        words: Number of all words.
    """
    if words < _GUESSABLE or not counts:
        return None
    name = max(counts, key=lambda each: counts[each])
    return name if counts[name] >= _SHARE * words and counts[name] > english else None
