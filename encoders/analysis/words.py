"""Cut texts into words with offsets into the original text, and make terms of the words.

A *word* is a unit of BERT's normaliser and pre-tokeniser (lower case, accents stripped, split at white space and at every
punctuation character, CJK characters one by one). The tokeniser of the model folder splits the text, so a word always consists of
whole word-pieces. A *term* is the form in which the index holds a word: no stop words (Lucene's 33), Porter-stemmed, NFC.

The rules, all tested:

====================  ==========================================================================================
numbers, dots         ``3.14`` -> 3, 14; ``os.path`` -> os, path: dots split, as the model sees them
hyphens, underscores  split: ``state-of-the-art`` -> state, art
apostrophes           split: ``don't`` -> don, t (its idf is near 0); ``world's`` -> world (the stem of s is empty)
ASCII symbols         punctuation, as in BERT: ``C++`` -> c
emoji, other symbols  a term of their own, also when glued to a word: ``good👍`` -> good, 👍 (BERT would see one unknown word)
CJK ideographs        single characters (`ChineseWords` makes words of them); Hangul and kana as BERT splits them, recomposed (NFC)
ligatures             ``ﬁnd`` -> find (text taken from PDF files is full of them)
combining accents     stripped with the others: ``é`` = ``e`` + U+0301 -> e; so are Hebrew points and Arabic vowels
right to left         words in reading order, as stored; marks of direction (U+200E, U+202A-E ...) vanish
zero-width            U+200B separates words; joiners, soft hyphen and byte-order mark vanish
control characters    form feed, vertical tab, U+001C-1F, U+0085 separate words; NUL and the rest vanish
lone surrogates       vanish like U+FFFD: UTF-8 cannot write them
terms > 200 chars     dropped and counted (`Analysis.too_long`)
====================  ==========================================================================================

Everything is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import Pieces

#: Id of the analysis, stored with models and statistics. Any change that alters a term needs a new id.
ANALYSIS = "bert-words.lucene33.porter.1"

#: Longest term in characters. Longer ones are not words, and the engine refuses long feature names.
LONGEST_TERM = 200

#: Lucene's EnglishAnalyzer stop set.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "  # noqa: SIM905 - reads as the list it is
    "that the their then there these they this to was will with".split()
)

_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
_SEPARATORS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u200b")
_ASCII_SEPARATOR = re.compile("[\x0b\x0c\x1c-\x1f]")
#: Characters at which every tokeniser ends a word.
GAP = re.compile("[ \n]")
#: Characters of a part; longer texts are split into parts.
_PART = 1 << 18
_CACHED_WORD = 64
_CACHE_SIZE = 1 << 18


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one text, in reading order; n words.

    Attributes:
        clean: The text that the tokeniser reads (see `cleaned`).
        starts: int64 ``(n,)``, offsets of first characters in the original text. A word-piece that begins inside a ligature
            starts behind the ligature, and has no character of its own if it also ends inside the ligature.
        ends: int64 ``(n,)``, offsets behind the last characters, combining marks included.
        clean_ends: int64 ``(n,)``, offsets behind the last characters in `clean`.
        terms: The term of each word; "" for a dropped word.
        cuts_words: Whether the analysis cuts words itself, so that its words are not those of the tokeniser.
    """

    clean: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    clean_ends: NDArray[np.int64]
    terms: list[str]
    cuts_words: bool = False

    def word_of_piece(self, pieces: Pieces) -> NDArray[np.int64]:
        """int64 ``(pieces,)``: the index of the word of each piece, -1 for [CLS] and [SEP]."""
        if not self.cuts_words:
            return pieces.words
        # A piece belongs to the word in which it begins.
        return np.where(pieces.words < 0, -1, np.searchsorted(self.clean_ends, pieces.starts, side="right"))


@lru_cache(maxsize=4096)
def replacement(character: str) -> str | None:
    """The text that replaces a character before tokenisation; None keeps the character."""
    if character in _SEPARATORS:
        return " "
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    if character in _LIGATURES:
        return _LIGATURES[character]
    category = unicodedata.category(character)
    if category == "Me":  # the enclosing keycap of 1️⃣
        return ""
    if category[0] == "S" and character > "\x7f" and character != "\ufffd":
        return f" {character} "
    return None


def cleaned(text: str) -> tuple[str, NDArray[np.int64] | None]:
    """Clean a text for the tokeniser, and map its offsets back.

    Returns:
        The clean text and, if its length differs, int64 ``(len(clean),)``: the original offset of each clean character.
    """
    if text.isascii() and not _ASCII_SEPARATOR.search(text):
        return text, None
    table = {ord(character): to for character in set(text) if (to := replacement(character)) is not None}
    if not table:
        return text, None
    clean = text.translate(table)
    if all(len(to) == 1 for to in table.values()):
        return clean, None
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    lengths = np.ones(len(codes), dtype=np.int64)
    for code, to in table.items():
        if len(to) != 1:
            lengths[codes == code] = len(to)
    return clean, np.repeat(np.arange(len(codes), dtype=np.int64), lengths)


def _parts(clean: str) -> Iterator[tuple[int, str]]:
    """Split a long text at white space, so that no word is cut: the offset and the text of each part."""
    start = 0
    while start < len(clean):
        gap = GAP.search(clean, start + _PART)
        end = gap.start() if gap else len(clean)
        yield start, clean[start:end]
        start = end


def behind_marks(text: str, end: int, limit: int) -> int:
    """The end of a word, moved behind the combining marks that follow it: the tokeniser strips the marks, a reader sees them on the word."""
    while end < limit and text[end] > "\u02ff" and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def is_punctuation(word: str) -> bool:
    """Whether a word is only punctuation; ASCII symbols count as punctuation, as in BERT."""
    return all(unicodedata.category(each)[0] == "P" or (each < "\x7f" and not each.isalnum()) for each in word)


class Analysis:
    """Splits texts into words and terms with the tokeniser of one model folder. Safe to share between threads."""

    id: ClassVar[str] = ANALYSIS
    #: The language of the stemmer and the stop list; messages and the check of the corpus's language use it.
    language: ClassVar[str | None] = "English"
    #: The value of `Words.cuts_words`.
    cuts_words: ClassVar[bool] = False

    def __init__(self, tokenizer: Any) -> None:
        """Use the normaliser and the pre-tokeniser of a model.

        Args:
            tokenizer: A `tokenizers.Tokenizer`, BERT-like.
        """
        import Stemmer  # noqa: PLC0415 - compiled libraries load when an encoder does
        from tokenizers import Tokenizer, models  # noqa: PLC0415

        # Every word becomes one unknown token: only the splitting remains, with offsets, in parallel and outside the GIL.
        self._splitter = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        self._splitter.normalizer = tokenizer.normalizer
        self._splitter.pre_tokenizer = tokenizer.pre_tokenizer
        self._normalizer = tokenizer.normalizer
        self._stem = Stemmer.Stemmer("porter").stemWord
        self._cache: dict[str, str | None] = {}
        #: Number of words dropped so far because their terms were too long.
        self.too_long = 0

    def words(self, texts: Sequence[str]) -> list[Words]:
        """The words of each text, including punctuation, whose term is ""."""
        cleans = [cleaned(text) for text in texts]
        results = []
        for text, (clean, back), cut in zip(texts, cleans, self._cut([clean for clean, _ in cleans]), strict=True):
            offsets = np.array([(start, end) for start, end, _ in cut], dtype=np.int64).reshape(-1, 2)
            starts, ends = offsets[:, 0], offsets[:, 1]
            terms = [term for _, _, term in cut]
            clean_ends = ends
            if back is not None:
                places = np.append(back, len(text))  # tokens without a character of their own may stand behind the last one
                ends = np.where(ends > 0, places[ends - 1] + 1, 0)
                starts = np.minimum(places[starts], ends)
                starts[1:] = np.maximum(starts[1:], ends[:-1])  # word-pieces that meet inside a ligature
            if not clean.isascii():
                limits = [*starts[1:].tolist(), len(text)]
                moved = [behind_marks(text, end, limit) for end, limit in zip(ends.tolist(), limits, strict=False)]
                ends = np.array(moved, dtype=np.int64)
            results.append(Words(clean, starts, ends, clean_ends, terms, self.cuts_words))
        return results

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        """All terms of each text, repetitions included, as collection statistics count them."""
        return [[term for _, _, term in cut if term] for cut in self._cut([cleaned(text)[0] for text in texts])]

    def is_word(self, piece_of_text: str) -> bool:
        """Whether a part of a text is more than punctuation."""
        return not is_punctuation(self.normalised(piece_of_text))

    def normalised(self, piece_of_text: str) -> str:
        """A part of a text as the tokeniser normalises it: lower case, no accents."""
        return str(self._normalizer.normalize_str(cleaned(piece_of_text)[0])).strip()

    def _cut(self, cleans: list[str]) -> list[list[tuple[int, int, str]]]:
        """The words of clean texts as (start, end, term), in reading order, without overlaps; the term of a dropped word is ""."""
        if max(map(len, cleans), default=0) <= _PART:
            return self._cut_at_once(cleans)
        return [
            [(at + start, at + end, term) for at, part in _parts(clean) for start, end, term in self._cut_at_once([part])[0]]
            for clean in cleans
        ]

    def _cut_at_once(self, cleans: list[str]) -> list[list[tuple[int, int, str]]]:
        """Do the work of `_cut` for short texts in one call: the tokeniser holds some 500 bytes of memory for every word."""
        term = self._term
        return [
            [(start, end, term(clean[start:end]) or "") for start, end in self._spans(clean, split.offsets)]
            for clean, split in zip(cleans, self._splitter.encode_batch(cleans, add_special_tokens=False), strict=True)
        ]

    def _spans(self, clean: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:  # noqa: ARG002 - an override reads it
        """Start and end of each word, given those of the tokeniser's words; this base class takes the tokeniser's words as they are."""
        return offsets

    def _term(self, written: str) -> str | None:
        """The term of a word as written in the clean text; None for a dropped word."""
        try:
            term = self._cache[written]
        except KeyError:
            term = self._make_term(self._normalizer.normalize_str(written).strip())
            if len(written) <= _CACHED_WORD:
                if len(self._cache) >= _CACHE_SIZE:
                    self._cache.clear()
                self._cache[written] = term
        return self._short_enough(term)

    def _short_enough(self, term: str | None) -> str | None:
        """The given term; None: it is too long to be a word (which is counted), or the given term is None."""
        if term is not None and len(term) > LONGEST_TERM:
            self.too_long += 1
            return None
        return term

    def _make_term(self, word: str) -> str | None:
        if not word or word in STOP_WORDS or is_punctuation(word):
            return None
        return unicodedata.normalize("NFC", self._stem(word)) or None
