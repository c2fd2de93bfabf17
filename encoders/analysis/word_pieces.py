"""Texts to word-pieces, each with the word of the analysis that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.analysis import tokenizer_file
from termweave.encoders.analysis.words import GAP
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Characters that are read for each token that there is room for, at first; English has four to six per token.
_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Pieces:
    """The word-pieces of one text as the model sees them, [CLS] first and [SEP] last (or what the tokeniser has for them).

    Attributes:
        ids: int64 ``(n,)``.
        words: int64 ``(n,)``: the index of the tokeniser's word of each piece (`Words.of`: of the analysis's); -1 for [CLS], [SEP] and
            the pieces of a prompt.
        starts: int64 ``(n,)``: the offset of each piece in the clean text, -1 for the same pieces.
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
        self.tokenizer: Any = tokenizer_file.read(file)
        special = [self.tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]")]
        if None in special:
            raise ModelError(
                f"{file} has no [CLS] or no [SEP].", "Term weights of whole words, and training, need a BERT-like model."
            )
        own = self.tokenizer.encode("").ids  # MPNet has BERT's words, and [CLS] among them, but reads <s> and </s>
        self._first, self._last = own if len(own) == 2 else special
        self._prompts: dict[str, list[int]] = {"": []}

    def encode(
        self, texts: Sequence[str], max_length: int, *, ends: Sequence[NDArray[np.int64]] | None = None, prompt: str = ""
    ) -> list[Pieces]:
        """Split texts into pieces, in parallel; of a long text only as much as is kept.

        Args:
            texts: Clean texts (`words.cleaned`).
            max_length: The most pieces to keep, [CLS], [SEP] and the prompt included.
            ends: Where the words of each text end, if that is known: a word is at least one piece. None: growing parts of the text
                are tried.
            prompt: Text that is put before each text; its pieces belong to no word.

        Raises:
            ModelError: The prompt leaves no room for a text.
        """
        before = self._pieces_of_prompt(prompt)
        room = max_length - 2 - len(before)
        if before and room < 1:
            raise ModelError(
                f"The model reads {max_length} tokens, and its prompt {prompt!r} has {len(before)}.",
                "Train it with a longer max_length.",
            )
        if ends is not None:
            heads = [text[: int(end[room - 1])] if len(end) > room else text for text, end in zip(texts, ends, strict=True)]
            encodings = self.tokenizer.encode_batch(heads, add_special_tokens=False)
        else:
            encodings = encodings_of_beginnings(self.tokenizer, texts, room)
        return [self._pieces(encoding, before, room) for encoding in encodings]

    def lengths(self, texts: Sequence[str], prompt: str = "") -> list[int]:
        """Pieces of each whole text (clean, as in `encode`), with [CLS], [SEP] and the prompt."""
        added = 2 + len(self._pieces_of_prompt(prompt))
        return [added + len(encoding.ids) for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _pieces_of_prompt(self, prompt: str) -> list[int]:
        if prompt not in self._prompts:
            self._prompts[prompt] = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        return self._prompts[prompt]

    def _pieces(self, encoding: Any, before: list[int], room: int) -> Pieces:
        kept, none = encoding.ids[:room], [-1] * (1 + len(before))
        ids = np.array([self._first, *before, *kept, self._last], dtype=np.int64)
        words = np.array([*none, *encoding.word_ids[: len(kept)], -1], dtype=np.int64)
        starts = np.array([*none, *(start for start, _ in encoding.offsets[: len(kept)]), -1], dtype=np.int64)
        return Pieces(ids, words, starts)


def encodings_of_beginnings(tokenizer: Any, texts: Sequence[str], wanted: int) -> list[Any]:
    """Encodings without special tokens; of a long text only as much as has the wanted number of tokens."""
    heads = [_beginning(text, wanted * _CHARACTERS) for text in texts]
    encodings: list[Any] = tokenizer.encode_batch(heads, add_special_tokens=False)
    for place, (text, head) in enumerate(zip(texts, heads, strict=True)):
        size = len(head)
        while len(encodings[place].ids) < wanted and size < len(text):  # long words, or many characters without a token
            longer = _beginning(text, 4 * size)
            size, encodings[place] = len(longer), tokenizer.encode(longer, add_special_tokens=False)
    return encodings


def _beginning(text: str, size: int) -> str:
    """The beginning of a text: `size` characters, and the rest of the word that the cut falls into."""
    gap = GAP.search(text, size)
    return text[: gap.start()] if gap else text
