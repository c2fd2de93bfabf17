"""Entries of a model's vocabulary as terms, exactly as ``tokenizer.json`` writes them: RoBERTa's ``Ġcat``, XLM-R's ``▁cat``.

This is the analysis of sparse encoders whose tokeniser is not made of BERT's word-pieces. There is no stop list and no stemmer, and
special tokens are no terms. A byte-level vocabulary writes every byte as a printable character, so ``ü`` is ``Ã¼``: the entry is
kept as it is, because an entry may be a part of a character. Where several entries come from one character, the first
one stands on the character, and the others behind it have no character of their own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from termweave.encoders.analysis.words import Analysis


class VocabularyTerms(Analysis):
    """Tokens of the model folder's tokeniser."""

    id: ClassVar[str] = "vocabulary.1"
    language: ClassVar[str | None] = None
    own: ClassVar[bool] = True

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
        """Tokens with their places; the blank that an entry may begin with is not part of the place."""
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
