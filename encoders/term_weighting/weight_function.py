"""How the logits of a model become weights: the anchor of the weight, and the function that makes the multiplier.

========  ===================  ====================================  =========================================
anchor    weight of a term     weight of a query's term              with z = 0, or for a word that the model cannot see
========  ===================  ====================================  =========================================
bm25      idf(t) * f^p * m(z)  sum over its occurrences of m(z)      idf(t) * f^p; p = 1: its BM25 impact
idf       idf(t) * m(z)        the same                              its idf
none      m(z)                 the same                              0; for an unseen word the text's mean weight, or 0
========  ===================  ====================================  =========================================

``f`` is BM25's frequency part, bm25(t, d) / idf(t), and p is its power (`Form.tf_power`), which decides how much repetitions count:
1 is BM25, 0 is idf. A power in between ranks better than both on most collections (docs/term-weights.md).

``m`` is the activation: softplus(z + ln(e - 1)), which is 1 at z = 0; log(1 + ReLU(z)) (FecTek, Eq. 1); or max(z, 0), the output of a
regression without its negative part (LE-BS, 3.2). ``z`` of a word is the maximum over its pieces, or their sum (LE-BS, 3.2.1: the
weight of a Chinese word is distributed over its characters).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

#: The number whose softplus is 1.
UNIT = math.log(math.e - 1.0)
#: Tags for the place of a piece in its word; 0 is no place ([CLS], [SEP], padding).
BEGIN, MIDDLE, END, SINGLE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the weight function; the formulas are in the docstring of the module.

    Attributes:
        kind: The anchor of a document's weight.
        activation: The function from logit to multiplier (with anchor "none": to weight).
        pieces: How the logits of a word's pieces become one.
        query: The weights of a query: learned like a document's, idf, or 1 per occurrence.
        tf_power: With kind "bm25", the power of its frequency part: 1 is BM25, 0 is idf.
        beyond: With kind "none", what a word beyond the cut of its text weighs: the mean of the others, or none, as if the text ended there.
    """

    kind: Literal["bm25", "idf", "none"] = "bm25"
    activation: Literal["softplus", "log", "linear"] = "softplus"
    pieces: Literal["max", "sum"] = "max"
    query: Literal["learned", "idf", "one"] = "learned"
    tf_power: float = 1.0
    beyond: Literal["mean", "none"] = "mean"

    @classmethod
    def from_anchor(cls, anchor: Mapping[str, Any]) -> Form:
        """The form that the `anchor` of a manifest describes; missing entries have their defaults."""
        return cls(**{field.name: anchor[field.name] for field in fields(cls) if field.name in anchor})

    def activate(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply ``m`` to each element."""
        result: NDArray[np.float64]
        if self.activation == "softplus":
            result = np.logaddexp(0.0, logits + UNIT)
        else:
            result = np.maximum(logits, 0.0)
            result = np.log1p(result) if self.activation == "log" else result
        return result

    def of_words(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64], words: int) -> NDArray[np.float64]:
        """``m`` of each word, NaN for a word that the model did not see: ``(pieces,) -> (words,)``."""
        seen = word_of_piece >= 0
        if self.pieces == "max":
            joined = np.full(words, -np.inf)
            np.maximum.at(joined, word_of_piece[seen], logits[seen])
        else:
            joined = np.bincount(word_of_piece[seen], weights=logits[seen], minlength=words).astype(np.float64)
        is_seen = np.zeros(words, dtype=bool)
        is_seen[word_of_piece[seen]] = True
        values = np.full(words, np.nan)
        values[is_seen] = self.activate(joined[is_seen])
        return values

    @property
    def averages(self) -> bool:
        """Whether an unseen word gets the mean multiplier of the seen words instead of 1."""
        return self.activation != "softplus" and self.beyond == "mean"

    def unseen(self, seen: NDArray[np.float64]) -> float:
        """``m`` of a word that the model could not see, given those of the indexed words that it saw in the same text."""
        if self.activation == "softplus":
            return 1.0
        return float(seen.mean()) if len(seen) and self.averages else 0.0


def place_tags(word_of_piece: NDArray[np.int64]) -> NDArray[np.float32]:
    """The place of each piece in its word (begin, middle, end or single): float32 ``(pieces,)``, 0 for special pieces.

    Example:
        >>> place_tags(np.array([-1, 0, 0, 0, 1, 2, 2, -1])).tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0, 1.0, 3.0, 0.0]
    """
    outside = np.array([-2], dtype=np.int64)
    first = word_of_piece != np.concatenate((outside, word_of_piece[:-1]))
    last = word_of_piece != np.concatenate((word_of_piece[1:], outside))
    tags = np.select([first & last, first, last], [SINGLE, BEGIN, END], MIDDLE)
    result: NDArray[np.float32] = np.where(word_of_piece < 0, 0, tags).astype(np.float32)
    return result
