"""The tokeniser of any transformers model: texts and pairs of texts -> token ids, special tokens included.

Other than `word_pieces`, nothing is known here about words: the model's own ``tokenizer.json`` decides everything. Special tokens
that are written in a text ("</s>") are read as text: a document cannot end its own sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis import tokenizer_file
from termweave.encoders.analysis.word_pieces import encodings_of_beginnings
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Tokens beyond the room that are made and dropped: where a text is cut, its last tokens differ from those of the whole text.
_MARGIN = 16


class ModelTokenizer:
    """A ``tokenizer.json`` with its own normaliser, model and special tokens."""

    def __init__(self, file: Path, *, lower: bool = False) -> None:
        """Read the file.

        Args:
            file: The ``tokenizer.json``.
            lower: Lower-case texts first, whatever the file says (`do_lower_case` of sentence-transformers).

        Raises:
            ModelError: The file is missing or is not a tokeniser.
        """
        from tokenizers import normalizers  # noqa: PLC0415 - compiled libraries load when an encoder does

        if not file.is_file():
            raise ModelError(
                f"The model has no tokeniser: {file} is missing.",
                "Save it with transformers' fast tokeniser: AutoTokenizer.from_pretrained(...).save_pretrained(DIR).",
            )
        self.tokenizer: Any = tokenizer_file.read(file)
        if lower:
            own = [self.tokenizer.normalizer] if self.tokenizer.normalizer else []
            self.tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
        self._added, self._added_to_pair = (self.tokenizer.num_special_tokens_to_add(pair) for pair in (False, True))

    def encode(self, texts: Sequence[str], max_length: int, *, special: bool = True) -> list[NDArray[np.int64]]:
        """Token ids of each text, ``(n,)``: at most `max_length`, special tokens included where `special` asks for them."""
        room = max(max_length - self._added, 0) if special else max_length
        encodings = self._tokens(texts, room)
        for encoding in encodings:
            encoding.truncate(room)
        return [_ids(self.tokenizer.post_process(encoding) if special else encoding) for encoding in encodings]

    def encode_pair_windows(
        self, pairs: Sequence[tuple[str, str]], max_length: int, most: int
    ) -> list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]]:
        """Token ids and types of each pair, ``(n,)`` each, several times for a second text that is too long.

        In the first entry of a pair the longer text is cut until both fit. The others read further windows of the second text, each as
        long as what the first one has of it; neighbours share a quarter.

        Args:
            pairs: The pairs.
            max_length: Most tokens of a sequence, special tokens included.
            most: Most windows of a pair; the text behind the last one is not read.
        """
        joined = self._windows(pairs, max_length, most)
        return [[(_ids(encoding), np.array(encoding.type_ids, dtype=np.int64)) for encoding in entry] for entry in joined]

    def window_spans(self, pair: tuple[str, str], max_length: int, most: int) -> list[tuple[int, int]]:
        """Start and end of each window of the second text that `encode_pair_windows` reads, in characters."""
        spans = []
        for encoding in self._windows([pair], max_length, most)[0]:
            places = [place for place, text in zip(encoding.offsets, encoding.sequence_ids, strict=True) if text == 1]
            spans.append((min((start for start, _ in places), default=0), max((end for _, end in places), default=0)))
        return spans

    def _windows(self, pairs: Sequence[tuple[str, str]], max_length: int, most: int) -> list[list[Any]]:
        """The encodings of each pair, special tokens included: one for each window of the second text."""
        room = max(max_length - self._added_to_pair, 0)
        firsts = self._tokens([pair[0] for pair in pairs], room)
        seconds = self._tokens([pair[1] for pair in pairs], room * most)
        results = []
        for pair, first, second in zip(pairs, firsts, seconds, strict=True):
            one, other = longest_first(len(first.ids), len(second.ids), room)
            if room % 2 and one + other == room and abs(one - other) == 1:  # the whole texts decide which one keeps the odd token
                whole = self.lengths(pair)
                one, other = longest_first(whole[0], whole[1], room)
            first.truncate(one)
            second.truncate(other, stride=other // 4 if most > 1 else 0)
            windows = [second, *second.overflowing][:most] if most > 1 else [second]
            results.append([self.tokenizer.post_process(first, window) for window in windows])
        return results

    @property
    def joins_pairs(self) -> bool:
        """Whether the tokeniser puts a special token between the two texts of a pair."""
        sequences = self.tokenizer.encode("a 1", "b 2").sequence_ids
        return {0, 1} <= set(sequences) and None in sequences[sequences.index(0) : sequences.index(1)]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each whole text, special tokens included."""
        encodings = self.tokenizer.encode_batch([_valid(text) for text in texts], add_special_tokens=False)
        return [len(encoding.ids) + self._added for encoding in encodings]

    def _tokens(self, texts: Sequence[str], room: int) -> list[Any]:
        """Encodings without special tokens; of a long text only as much as the room needs."""
        return encodings_of_beginnings(self.tokenizer, [_valid(text) for text in texts], room + _MARGIN)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths of two texts that share a room, as tokenizers' strategy "longest_first" cuts them.

    Example:
        >>> longest_first(10, 500, 100), longest_first(300, 500, 101), longest_first(10, 20, 100)
        ((10, 90), (50, 51), (10, 20))
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return (room - half, half) if first > second else (half, room - half)


def _valid(text: str) -> str:
    """Replace lone surrogates in a text, because no tokeniser accepts them."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _ids(encoding: Any) -> NDArray[np.int64]:
    return np.array(encoding.ids, dtype=np.int64)
