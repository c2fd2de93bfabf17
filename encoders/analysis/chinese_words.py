"""Words of English and Chinese text; Chinese words are found by jieba: 研究生命起源 -> 研究, 生命, 起源.

The tokeniser still reads single characters. An ideograph belongs to the word that jieba puts it in, so that the weight of a word is
made from those of its characters (BERT-Scorer's characters -> words). Japanese kana and Korean stay as BERT splits them: jieba
knows Chinese only. There is no Chinese stop list: a word that stands everywhere has an idf near 0.
"""

from __future__ import annotations

import unicodedata
from typing import Any, ClassVar

from termweave.encoders.analysis.words import Analysis

#: Full-width letters, digits and signs of Chinese text -> their ASCII forms.
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


class ChineseWords(Analysis):
    """Words of English and Chinese text."""

    id: ClassVar[str] = "bert-words.jieba.lucene33.porter.1"
    language: ClassVar[str | None] = "Chinese"
    own: ClassVar[bool] = True

    def __init__(self, tokenizer: Any) -> None:
        """Prepare the analysis; the dictionary is read once per process (.2 s)."""
        import rjieba  # noqa: PLC0415 - compiled libraries load when an encoder does

        super().__init__(tokenizer)
        self._cut_run = rjieba.cut

    def _spans(self, clean: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The words of the tokeniser, with every run of ideographs split by jieba."""
        spans: list[tuple[int, int]] = []
        run: tuple[int, int] | None = None
        for start, end in offsets:
            if end - start == 1 and _is_ideograph(clean[start]):
                if run and run[1] == start:
                    run = (run[0], end)
                    continue
                spans += self._words_of(clean, run)
                run = (start, end)
            else:
                spans += self._words_of(clean, run)
                run = None
                spans.append((start, end))
        return spans + self._words_of(clean, run)

    def _words_of(self, clean: str, run: tuple[int, int] | None) -> list[tuple[int, int]]:
        if run is None:
            return []
        spans, start = [], run[0]
        # NFC replaces compatibility characters, one by one, by those that the dictionary knows.
        for word in self._cut_run(unicodedata.normalize("NFC", clean[run[0] : run[1]])):
            spans.append((start, start + len(word)))
            start += len(word)
        return spans

    def _make_term(self, word: str) -> str | None:
        # BERT's normaliser puts spaces around ideographs.
        return super()._make_term("".join(word.split()).translate(_HALF_WIDTH).lower())


def _is_ideograph(character: str) -> bool:
    """Whether BERT makes a word of this single character (its `is_chinese_char`)."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x2CEAF or 0x2F800 <= code <= 0x2FA1F
    )  # fmt: skip
