"""The tokenisers of model folders: `PieceTokenizer` for models that weigh whole words, `ModelTokenizer` for any other model.

Both read the model's own ``tokenizer.json``. Special tokens that are written in a text ("</s>") are read as text: a document cannot end
its own sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis.words import GAP
from termweave.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Characters that are read for each token that there is room for, at first; English has four to six per token.
_CHARACTERS = 8
#: Tokens beyond the room that are made and dropped: where a text is cut, its last tokens differ from those of the whole text.
_MARGIN = 16


def read_tokenizer(file: Path) -> Any:
    """Read a tokeniser from a file, without padding and truncation. Where a text contains "[SEP]" or another special token, it is read as words.

    Raises:
        ModelError: The file is not a tokeniser.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - compiled libraries load when an encoder does

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises plain Exceptions
        raise ModelError(f"{file} cannot be read: {error}.", "Copy the model folder again.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters of text
    return tokenizer


@dataclass(frozen=True, slots=True)
class Pieces:
    """The word-pieces of one text as the model sees them, [CLS] first and [SEP] last (or what the tokeniser has for them).

    Attributes:
        ids: int64 ``(n,)``: the token id of each piece.
        words: int64 ``(n,)``: the index of each piece's word, as the tokeniser cuts words; -1 for [CLS], [SEP] and the pieces of a
            prompt. `Words.word_of_piece` translates these into words of the analysis.
        starts: int64 ``(n,)``: the offset of each piece in the clean text; -1 for [CLS], [SEP] and the pieces of a prompt.
    """

    ids: NDArray[np.int64]
    words: NDArray[np.int64]
    starts: NDArray[np.int64]


class PieceTokenizer:
    """The BERT-like tokeniser of a model folder, for models that weigh whole words."""

    def __init__(self, file: Path) -> None:
        """Read ``tokenizer.json``.

        Raises:
            ModelError: The file is not a tokeniser with [CLS] and [SEP].
        """
        self.tokenizer: Any = read_tokenizer(file)
        special = [self.tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]")]
        if None in special:
            raise ModelError(f"{file} has no [CLS] or no [SEP].", "Weights of whole words, and training, need a BERT-like model.")
        ids = self.tokenizer.encode("").ids  # MPNet has BERT's words, and [CLS] among them, but reads <s> and </s>
        self._first, self._last = ids if len(ids) == 2 else special

    def encode(
        self, texts: Sequence[str], max_length: int, *, ends: Sequence[NDArray[np.int64]] | None = None, prompt: str = ""
    ) -> list[Pieces]:
        """Split texts into word-pieces, in parallel; of a long text only the beginning that is kept is split.

        Args:
            texts: Clean texts (`words.cleaned`).
            max_length: The most pieces to keep, [CLS], [SEP] and the prompt included.
            ends: The offsets at which the words of each text end; they tell how much text to split, because a word is at least one
                piece. None: the ends are not known, and growing parts of the text are tried.
            prompt: Text that is put before each text; its pieces belong to no word.

        Raises:
            ModelError: The prompt leaves no room for a text.
        """
        before = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        room = max_length - 2 - len(before)
        if before and room < 1:
            raise ModelError(f"The prompt {prompt!r} has {len(before)} of the model's {max_length} tokens.", "Raise max_length.")
        if ends is not None:
            heads = [text[: int(end[room - 1])] if len(end) > room else text for text, end in zip(texts, ends, strict=True)]
            encodings = self.tokenizer.encode_batch(heads, add_special_tokens=False)
        else:
            encodings = encodings_of_beginnings(self.tokenizer, texts, room)
        return [self._pieces(encoding, before, room) for encoding in encodings]

    def lengths(self, texts: Sequence[str], prompt: str = "") -> list[int]:
        """The number of word-pieces of each whole text (clean, as in `encode`), counting [CLS], [SEP] and the prompt."""
        added = 2 + len(self.tokenizer.encode(prompt, add_special_tokens=False).ids)
        return [added + len(encoding.ids) for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _pieces(self, encoding: Any, before: list[int], room: int) -> Pieces:
        none = [-1] * (1 + len(before))
        ids = np.array([self._first, *before, *encoding.ids[:room], self._last], dtype=np.int64)
        words = np.array([*none, *encoding.word_ids[:room], -1], dtype=np.int64)
        starts = np.array([*none, *(start for start, _ in encoding.offsets[:room]), -1], dtype=np.int64)
        return Pieces(ids, words, starts)


def encodings_of_beginnings(tokenizer: Any, texts: Sequence[str], count: int) -> list[Any]:
    """Encode texts without special tokens; of a long text only a beginning that has at least `count` tokens."""
    heads = [_beginning(text, count * _CHARACTERS) for text in texts]
    encodings: list[Any] = tokenizer.encode_batch(heads, add_special_tokens=False)
    for place, (text, head) in enumerate(zip(texts, heads, strict=True)):
        size = len(head)
        while len(encodings[place].ids) < count and size < len(text):  # long words, or many characters without a token
            longer = _beginning(text, 4 * size)
            size, encodings[place] = len(longer), tokenizer.encode(longer, add_special_tokens=False)
    return encodings


def _beginning(text: str, size: int) -> str:
    """The beginning of a text: `size` characters, and the rest of the word that the cut falls into."""
    gap = GAP.search(text, size)
    return text[: gap.start()] if gap else text


class ModelTokenizer:
    """A ``tokenizer.json`` with its own normaliser, model and special tokens."""

    def __init__(self, file: Path, *, lower: bool = False) -> None:
        """Read a ``tokenizer.json``.

        Args:
            file: The file.
            lower: Lower-case texts first, whatever the file says (`do_lower_case` of sentence-transformers).

        Raises:
            ModelError: The file is missing or is not a tokeniser.
        """
        from tokenizers import normalizers  # noqa: PLC0415 - compiled libraries load when an encoder does

        self.tokenizer: Any = read_tokenizer(file)
        if lower:
            others = [self.tokenizer.normalizer] if self.tokenizer.normalizer else []
            self.tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
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
        """Token ids and token types of each pair, arrays of length n; a pair whose second text is too long gives one entry for each window of it.

        A window is a part of the second text. In the first entry of a pair the longer text is cut until both texts fit. The further entries
        hold later windows of the second text, of the same length as the first window; neighbouring windows overlap by a quarter.

        Args:
            pairs: Pairs of texts, such as query and document.
            max_length: Most tokens of a sequence, special tokens included.
            most: Most windows of a pair; the text behind the last one is not read.
        """
        joined = self._windows(pairs, max_length, most)
        return [[(_ids(encoding), np.array(encoding.type_ids, dtype=np.int64)) for encoding in entry] for entry in joined]

    def window_spans(self, pair: tuple[str, str], max_length: int, most: int) -> list[tuple[int, int]]:
        """Start and end, in characters, of each window of the pair's second text that `encode_pair_windows` reads."""
        spans = []
        for encoding in self._windows([pair], max_length, most)[0]:
            places = [place for place, text in zip(encoding.offsets, encoding.sequence_ids, strict=True) if text == 1]
            spans.append((min((start for start, _ in places), default=0), max((end for _, end in places), default=0)))
        return spans

    def _windows(self, pairs: Sequence[tuple[str, str]], max_length: int, most: int) -> list[list[Any]]:
        """Encodings of each pair of texts, special tokens included: one encoding for each window of the second text."""
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
        """The number of tokens of each whole text, special tokens included."""
        encodings = self.tokenizer.encode_batch([_valid(text) for text in texts], add_special_tokens=False)
        return [len(encoding.ids) + self._added for encoding in encodings]

    def _tokens(self, texts: Sequence[str], room: int) -> list[Any]:
        """Encode texts without special tokens; of a long text only a beginning that fills `room` tokens."""
        return encodings_of_beginnings(self.tokenizer, [_valid(text) for text in texts], room + _MARGIN)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths to which two texts are cut so that together they have at most `room` tokens, by tokenizers' strategy "longest_first".

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
