"""Text -> word-pieces, each knowing which word of the analysis it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis import GAP
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Characters that are cut for each piece that there is room for; English has five to six a piece, the blank included.
_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Pieces:
    """The word-pieces of one text as the model sees them, [CLS] first and [SEP] last.

    Attributes:
        ids: int64 ``(n,)``.
        words: int64 ``(n,)``: which word of the tokeniser each piece is of, -1 for [CLS] and [SEP] (`Words.of` says which of the analysis).
        starts: int64 ``(n,)``: where each piece begins in the clean text, -1 for [CLS] and [SEP].
    """

    ids: NDArray[np.int64]
    words: NDArray[np.int64]
    starts: NDArray[np.int64]


class PieceTokenizer:
    """The tokeniser of a model folder."""

    def __init__(self, file: Path) -> None:
        """Read ``tokenizer.json``.

        Raises:
            ModelError: It is not a tokeniser with [CLS] and [SEP].
        """
        from tokenizers import Tokenizer  # noqa: PLC0415 - compiled libraries load when an encoder does

        try:
            self.tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # what tokenizers raises is a plain Exception
            raise ModelError(f"{file} cannot be read: {error}.", "Copy the model folder again.") from error
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters of text
        self._first = self.tokenizer.token_to_id("[CLS]")
        self._last = self.tokenizer.token_to_id("[SEP]")
        if self._first is None or self._last is None:
            raise ModelError(f"{file} has no [CLS] or no [SEP].", "Only BERT-like models are supported.")

    def encode(self, texts: Sequence[str], max_length: int, *, ends: Sequence[NDArray[np.int64]] | None = None) -> list[Pieces]:
        """Cut texts into pieces, in parallel; of long texts no more than what is kept needs.

        Args:
            texts: Clean texts (`analysis.cleaned`).
            max_length: Pieces to keep, [CLS] and [SEP] included.
            ends: Where the words of each text end, if that is known: a word is at least one piece. Otherwise it is tried.
        """
        room = max_length - 2
        if ends is not None:
            heads = [text[: int(end[room - 1])] if len(end) > room else text for text, end in zip(texts, ends, strict=True)]
            return [self._pieces(each, room) for each in self._cut(heads)]
        heads = [_head(text, room * _CHARACTERS) for text in texts]
        found = self._cut(heads)
        for place, (text, head) in enumerate(zip(texts, heads, strict=True)):
            size = len(head)
            while len(found[place].ids) < room and size < len(text):  # long words, or much that is no piece: blanks, marks
                longer = _head(text, 4 * size)
                size, found[place] = len(longer), self._cut([longer])[0]
        return [self._pieces(each, room) for each in found]

    def _cut(self, texts: list[str]) -> list[Any]:
        found: list[Any] = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return found

    def _pieces(self, encoding: Any, room: int) -> Pieces:
        kept = encoding.ids[:room]
        ids = np.array([self._first, *kept, self._last], dtype=np.int64)
        words = np.array([-1, *encoding.word_ids[: len(kept)], -1], dtype=np.int64)
        starts = np.array([-1, *(start for start, _ in encoding.offsets[: len(kept)]), -1], dtype=np.int64)
        return Pieces(ids, words, starts)


def _head(text: str, size: int) -> str:
    """The beginning of a text, of `size` characters and those of the word that is under way there."""
    gap = GAP.search(text, size)
    return text[: gap.start()] if gap else text
