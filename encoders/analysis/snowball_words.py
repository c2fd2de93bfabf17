"""Words of German, French, Spanish, Portuguese, Italian, Dutch and Russian: stop words and Snowball's stemmer of the language.

Words are split as the tokeniser of the model folder splits them. Unlike in the other analyses, stop words and stemmer see
the accents (``für`` is a stop word, ``fur`` is not); then they are stripped, so that ``Café`` and ``cafe`` are one term. In Russian only
U+0451 (yo) becomes U+0435 (ye): a short i is a letter of its own.

    german   Bücher, Büchern, Buch -> buch        french   nationales, national -> national
    spanish  corrieron -> corr                    russian  книгами, книга -> книг
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.stop_words import STOP_WORDS
from termweave.encoders.analysis.words import Analysis, is_punctuation

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    def _spans(self, clean: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The words of the tokeniser with their combining marks, which it may have left out."""
        if not offsets or clean.isascii():
            return offsets
        limits = [*(start for start, _ in offsets[1:]), len(clean)]
        return [(start, _behind_marks(clean, end, limit)) for (start, end), limit in zip(offsets, limits, strict=True)]

    def _make_term(self, word: str) -> str | None:
        word = unicodedata.normalize("NFC", word)
        if self.name == "russian":
            word = word.replace("ё", "е")  # noqa: RUF001 - Russian letters
        if not word or word in STOP_WORDS[self.name] or is_punctuation(word):
            return None
        stem: str = self._stem(word)
        if self.name != "russian":
            decomposed = unicodedata.normalize("NFD", stem)
            stem = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        return unicodedata.normalize("NFC", stem) or None


def _behind_marks(clean: str, end: int, limit: int) -> int:
    """The end of a word, moved behind the combining marks that follow."""
    while end < limit and clean[end] > "\u02ff" and unicodedata.category(clean[end])[0] == "M":
        end += 1
    return end


def _analysis(name: str) -> type[LanguageWords]:
    """The class of a language."""
    attributes = {"name": name, "id": f"bert-words.snowball.{name}.1", "language": name.capitalize()}
    return type(f"{name.capitalize()}Words", (LanguageWords,), attributes)


#: Name of the language -> its analysis.
OF_LANGUAGE: Mapping[str, type[LanguageWords]] = {name: _analysis(name) for name in STOP_WORDS}
