"""The analyses (ways to make terms of a text), by id: Chinese words, words of seven other languages, word-pieces, entries of a vocabulary.

A model folder names its analysis by id. The behaviour of an id never changes; a changed analysis gets a new id.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from termweave.encoders.analysis.words import Analysis, behind_marks, is_punctuation
from termweave.errors import ModelError

#: A list of stop words for each language.
_STOP_WORDS = Path(__file__).parent / "stop_words"
#: How a word-piece begins that continues a word.
_CONTINUES = "##"
#: Full-width letters, digits and signs of Chinese text -> their ASCII forms.
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
#: A character of which BERT makes a word by itself (its `is_chinese_char`).
_IDEOGRAPH = re.compile("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f]")


class ChineseWords(Analysis):
    """Words of English and Chinese text; Chinese words are found by jieba: 研究生命起源 -> 研究, 生命, 起源.

    The tokeniser still reads single characters. An ideograph belongs to the word that jieba puts it in, so that the weight of a word is
    made from those of its characters (BERT-Scorer's characters -> words). Japanese kana and Korean stay as BERT splits them: jieba
    knows Chinese only. There is no Chinese stop list: a word that stands everywhere has an idf near 0.
    """

    id: ClassVar[str] = "bert-words.jieba.lucene33.porter.1"
    language: ClassVar[str | None] = "Chinese"
    cuts_words: ClassVar[bool] = True

    def __init__(self, tokenizer: Any) -> None:
        """Prepare the analysis; the dictionary is read once per process (.2 s)."""
        import rjieba  # noqa: PLC0415 - compiled libraries load when an encoder does

        super().__init__(tokenizer)
        self._cut_run = rjieba.cut

    def _spans(self, clean: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Start and end of each word: those of the tokeniser, with every run of ideographs split by jieba."""
        runs: list[tuple[int, int, bool]] = []
        for start, end in offsets:
            ideograph = end - start == 1 and _IDEOGRAPH.match(clean, start) is not None
            goes_on = ideograph and runs and runs[-1][1:] == (start, True)
            runs.append((runs.pop()[0] if goes_on else start, end, ideograph))
        words = (self._words_of(clean, start, end) if ideographs else [(start, end)] for start, end, ideographs in runs)
        return [span for spans in words for span in spans]

    def _words_of(self, clean: str, start: int, end: int) -> list[tuple[int, int]]:
        spans = []
        # NFC replaces compatibility characters, one by one, by those that the dictionary knows.
        for word in self._cut_run(unicodedata.normalize("NFC", clean[start:end])):
            spans.append((start, start + len(word)))
            start += len(word)
        return spans

    def _make_term(self, word: str) -> str | None:
        # BERT's normaliser puts spaces around ideographs.
        return super()._make_term("".join(word.split()).translate(_HALF_WIDTH).lower())


class LanguageWords(Analysis):
    """Words of German, French, Spanish, Portuguese, Italian, Dutch or Russian; `OF_LANGUAGE` has one class for each.

        german   Bücher, Büchern, Buch -> buch        french   nationales, national -> national
        spanish  corrieron -> corr                    russian  книгами, книга -> книг

    Words are split as the tokeniser of the model folder splits them. Unlike in the other analyses, stop words and Snowball's stemmer see
    the accents (``für`` is a stop word, ``fur`` is not); then they are stripped, so that ``Café`` and ``cafe`` are one term. In Russian only
    U+0451 (yo) becomes U+0435 (ye): a short i is a letter of its own.

    The stop words (``stop_words/``) are Snowball's, as OpenSearch's analyzers have them. Copyright (c) 2001, Dr Martin Porter; Copyright
    (c) 2002, Richard Boulton. BSD licence, https://snowballstem.org/license.html.
    """

    #: The name of the language, which is also that of OpenSearch's analyzer and of Snowball's stemmer.
    name: ClassVar[str]

    def __init__(self, tokenizer: Any) -> None:
        import Stemmer  # noqa: PLC0415 - compiled libraries load when an encoder does
        from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415

        super().__init__(tokenizer)
        self._normalizer = BertNormalizer(strip_accents=False, lowercase=True)
        self._stem = Stemmer.Stemmer(self.name).stemWord
        self._stop_words = frozenset((_STOP_WORDS / f"{self.name}.txt").read_text("utf-8").split())

    def _spans(self, clean: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Start and end of each word of the tokeniser, extended by combining marks that the tokeniser left out."""
        if not offsets or clean.isascii():
            return offsets
        limits = [*(start for start, _ in offsets[1:]), len(clean)]
        return [(start, behind_marks(clean, end, limit)) for (start, end), limit in zip(offsets, limits, strict=True)]

    def _make_term(self, word: str) -> str | None:
        word = unicodedata.normalize("NFC", word)
        if self.name == "russian":
            word = word.replace("ё", "е")  # noqa: RUF001 - Russian letters
        if not word or word in self._stop_words or is_punctuation(word):
            return None
        stem: str = self._stem(word)
        if self.name != "russian":
            decomposed = unicodedata.normalize("NFD", stem)
            stem = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        return unicodedata.normalize("NFC", stem) or None


#: Name of the language -> its analysis.
OF_LANGUAGE: Mapping[str, type[LanguageWords]] = {
    name: type(name, (LanguageWords,), {"name": name, "id": f"bert-words.snowball.{name}.1", "language": name.capitalize()})
    for name in sorted(file.stem for file in _STOP_WORDS.glob("*.txt"))
}


class VocabularyTerms(Analysis):
    """Entries of a model's vocabulary, exactly as ``tokenizer.json`` writes them: RoBERTa's ``Ġcat``, XLM-R's ``▁cat``.

    This is the analysis of sparse encoders whose tokeniser is not made of BERT's word-pieces. There is no stop list and no stemmer, and
    special tokens are no terms. A byte-level vocabulary writes every byte as a printable character, so ``ü`` is ``Ã¼``: the entry is
    kept as it is, because an entry may be a part of a character. Where several entries come from one character, the first
    one stands on the character, and the others behind it have no character of their own.
    """

    id: ClassVar[str] = "vocabulary.1"
    language: ClassVar[str | None] = None
    cuts_words: ClassVar[bool] = True

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._tokenizer = tokenizer
        self._special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}

    def normalised(self, piece_of_text: str) -> str:
        """A part of a text as the tokeniser normalises it; some tokenisers have no normaliser."""
        return super().normalised(piece_of_text) if self._normalizer else piece_of_text.strip()

    def _cut_at_once(self, cleans: list[str]) -> list[list[tuple[int, int, str]]]:
        encodings = self._tokenizer.encode_batch(cleans, add_special_tokens=False)
        pairs = zip(cleans, encodings, strict=True)
        return [self._entries(clean, encoding.tokens, encoding.offsets) for clean, encoding in pairs]

    def _entries(self, clean: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
        """Start, end and text of each token; a blank at the beginning of a vocabulary entry is not part of its place."""
        entries: list[tuple[int, int, str]] = []
        reached = 0
        for token, (first, end) in zip(tokens, offsets, strict=True):
            start = first
            while start < end - 1 and clean[start].isspace():
                start += 1
            start = max(start, reached)
            reached = max(end, start)
            entries.append((start, reached, "" if token in self._special else self._short_enough(token) or ""))
        return entries


class PieceTerms(VocabularyTerms):
    """Word-pieces, as the model itself reads them: ``playing`` -> play, ##ing.

    There is no stop list and no stemmer. A word that the vocabulary cannot write (BERT has one [UNK] for all of them) is its own term,
    so that it can be searched for. Several pieces that come from one character (decomposed Hangul) are one term.
    """

    id: ClassVar[str] = "bert-pieces.1"

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._unknown = tokenizer.model.unk_token

    def _entries(self, clean: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
        pieces: list[tuple[int, int, str]] = []
        for token, (start, end) in zip(tokens, offsets, strict=True):
            if pieces and start < pieces[-1][1]:
                first, _, before = pieces.pop()
                joined = unicodedata.normalize("NFC", before + token.removeprefix(_CONTINUES))
                pieces.append((first, end, self._short_enough(joined) or ""))
            else:
                written = self._normalizer.normalize_str(clean[start:end]).strip() if token == self._unknown else token
                pieces.append((start, end, self._short_enough(self._make_term(written)) or ""))
        return pieces

    def _make_term(self, word: str) -> str | None:
        return unicodedata.normalize("NFC", word) if not is_punctuation(word.removeprefix(_CONTINUES)) else None


_ALL: tuple[type[Analysis], ...] = (Analysis, ChineseWords, PieceTerms, VocabularyTerms, *OF_LANGUAGE.values())
ANALYSES: Mapping[str, type[Analysis]] = {analysis.id: analysis for analysis in _ALL}


def analysis_of(identity: str | None, tokenizer: Any, *, model: str) -> Analysis:
    """Make the analysis of a model folder.

    Args:
        identity: The id that the manifest names.
        tokenizer: The model's `tokenizers.Tokenizer`, BERT-like but for `VocabularyTerms`.
        model: The name of the model, for messages.

    Raises:
        ModelError: This termweave has no such analysis.
    """
    analysis = ANALYSES.get(identity or "")
    if analysis is None:
        hint = "Train it again, or use the version of termweave that made it."
        raise ModelError(f"The model {model!r} needs the analysis {identity!r}; known: {', '.join(map(repr, ANALYSES))}.", hint)
    return analysis(tokenizer)
