"""Word-pieces as terms: what the model itself reads, ``playing`` -> play, ##ing.

No stop list, no stemmer. A word that the vocabulary cannot write (BERT's one [UNK] for all of them) is its own term, so that it
can be searched for; several pieces that come of one character (decomposed Hangul) are one term.
"""

from __future__ import annotations

import unicodedata
from typing import Any, ClassVar

from termweave.encoders.analysis import Analysis, is_punctuation

_CONTINUES = "##"


class PieceTerms(Analysis):
    """Word-pieces of the model folder's tokeniser."""

    id: ClassVar[str] = "bert-pieces.1"
    language: ClassVar[str | None] = None
    own: ClassVar[bool] = True

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._tokenizer = tokenizer
        self._unknown = tokenizer.model.unk_token

    def _cut_at_once(self, cleans: list[str]) -> list[list[tuple[int, int, str]]]:
        encodings = self._tokenizer.encode_batch(cleans, add_special_tokens=False)
        return [self._pieces(clean, each.tokens, each.offsets) for clean, each in zip(cleans, encodings, strict=True)]

    def _pieces(self, clean: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for token, (start, end) in zip(tokens, offsets, strict=True):
            if found and start < found[-1][1]:
                first, _, before = found.pop()
                joined = unicodedata.normalize("NFC", before + token.removeprefix(_CONTINUES))
                found.append((first, end, self._kept(joined) or ""))
            else:
                written = self._normalizer.normalize_str(clean[start:end]).strip() if token == self._unknown else token
                found.append((start, end, self._kept(self._make_term(written)) or ""))
        return found

    def _make_term(self, word: str) -> str | None:
        return unicodedata.normalize("NFC", word) if not is_punctuation(word.removeprefix(_CONTINUES)) else None
