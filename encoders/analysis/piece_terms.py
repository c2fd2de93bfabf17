"""Word-pieces as terms, as the model itself reads them: ``playing`` -> play, ##ing.

There is no stop list and no stemmer. A word that the vocabulary cannot write (BERT has one [UNK] for all of them) is its own term,
so that it can be searched for. Several pieces that come from one character (decomposed Hangul) are one term.
"""

from __future__ import annotations

import unicodedata
from typing import Any, ClassVar

from termweave.encoders.analysis.vocabulary_terms import VocabularyTerms
from termweave.encoders.analysis.words import is_punctuation

_CONTINUES = "##"


class PieceTerms(VocabularyTerms):
    """Word-pieces of the model folder's tokeniser."""

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
