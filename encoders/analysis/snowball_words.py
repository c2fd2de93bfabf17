"""Words of German, French, Spanish, Portuguese, Italian, Dutch and Russian: stop words and Snowball's stemmer of the language.

Words are split as the tokeniser of the model folder splits them. Unlike in the other analyses, stop words and stemmer see
the accents (``für`` is a stop word, ``fur`` is not); then they are stripped, so that ``Café`` and ``cafe`` are one term. In Russian only
U+0451 (yo) becomes U+0435 (ye): a short i is a letter of its own.

The stop words (``stop_words/``) are Snowball's, as OpenSearch's analyzers have them. Copyright (c) 2001, Dr Martin Porter; Copyright
(c) 2002, Richard Boulton. BSD licence, https://snowballstem.org/license.html.

    german   Bücher, Büchern, Buch -> buch        french   nationales, national -> national
    spanish  corrieron -> corr                    russian  книгами, книга -> книг
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.words import Analysis, behind_marks, is_punctuation

if TYPE_CHECKING:
    from collections.abc import Mapping


#: A list of stop words for each language.
_STOP_WORDS = Path(__file__).parent / "stop_words"


class LanguageWords(Analysis):
    """The analysis of one language; `OF_LANGUAGE` has one class for each."""

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
        """The words of the tokeniser with their combining marks, which it may have left out."""
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


def _analysis(name: str) -> type[LanguageWords]:
    """The class of a language."""
    attributes = {"name": name, "id": f"bert-words.snowball.{name}.1", "language": name.capitalize()}
    return type(f"{name.capitalize()}Words", (LanguageWords,), attributes)


#: Name of the language -> its analysis.
OF_LANGUAGE: Mapping[str, type[LanguageWords]] = {file.stem: _analysis(file.stem) for file in sorted(_STOP_WORDS.glob("*.txt"))}
