"""How a model's logits become weights: what the weight is anchored on, and the function in between.

========  ===================  ====================================  =========================================
anchor    weight of a term     of a query's term                     what z = 0, or a word beyond sight, is worth
========  ===================  ====================================  =========================================
bm25      idf(t) * f^p * m(z)  sum over its occurrences of m(z)      idf(t) * f^p; p = 1: its BM25 impact
idf       idf(t) * m(z)        the same                              its idf
none      m(z)                 the same                              nothing; beyond sight: the text's mean weight
========  ===================  ====================================  =========================================

``f`` is BM25's frequency part, bm25(t, d) / idf(t), and p its power (`Form.tf_power`): how much repetitions count is what anchors on
BM25 and on idf disagree about, and a power in between ranks better than both on most collections (docs/term-weights.md).

``m`` is the activation: softplus(z + ln(e - 1)), which is 1 at z = 0; log(1 + ReLU(z)) (FecTek, Eq. 1); or max(z, 0), a
regression's own number with what is negative dropped (LE-BS, 3.2). ``z`` of a word is the maximum over its pieces, or their sum
(LE-BS, 3.2.1: the weight of a Chinese word is shared out among its characters).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

#: softplus of this is 1.
UNIT = math.log(math.e - 1.0)
#: Tags of a piece's place in its word; 0 is none ([CLS], [SEP], padding).
BEGIN, MIDDLE, END, SINGLE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Form:
    """See the module.

    Attributes:
        kind: What a document's weight is anchored on.
        activation: From logit to multiplier (or weight, with anchor "none").
        pieces: How the logits of a word's pieces become one.
        query: Query weights: learned like a document's, idf, or one for each occurrence.
        tf_power: With kind "bm25" the power of its frequency part: 1 is BM25, 0 idf.
    """

    kind: Literal["bm25", "idf", "none"] = "bm25"
    activation: Literal["softplus", "log", "linear"] = "softplus"
    pieces: Literal["max", "sum"] = "max"
    query: Literal["learned", "idf", "one"] = "learned"
    tf_power: float = 1.0

    @classmethod
    def of(cls, anchor: Mapping[str, Any]) -> Form:
        """From the `anchor` of a manifest; what it does not say is as it always was."""
        return cls(**{field.name: anchor[field.name] for field in fields(cls) if field.name in anchor})

    def activate(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """``m``, element by element."""
        result: NDArray[np.float64]
        if self.activation == "softplus":
            result = np.logaddexp(0.0, logits + UNIT)
        else:
            result = np.maximum(logits, 0.0)
            result = np.log1p(result) if self.activation == "log" else result
        return result

    def of_words(self, logits: NDArray[np.float64], word_of_piece: NDArray[np.int64], words: int) -> NDArray[np.float64]:
        """``m`` of each word, NaN for one that the model did not see: ``(pieces,) -> (words,)``."""
        seen = word_of_piece >= 0
        if self.pieces == "max":
            joined = np.full(words, -np.inf)
            np.maximum.at(joined, word_of_piece[seen], logits[seen])
        else:
            joined = np.bincount(word_of_piece[seen], weights=logits[seen], minlength=words).astype(np.float64)
        held = np.zeros(words, dtype=bool)
        held[word_of_piece[seen]] = True
        values = np.full(words, np.nan)
        values[held] = self.activate(joined[held])
        return values

    @property
    def averages(self) -> bool:
        """Whether a word that the model could not see is worth the mean of those that it saw, and not 1."""
        return self.activation != "softplus"

    def beyond(self, seen: NDArray[np.float64]) -> float:
        """``m`` of a word that the model could not see, given the indexed ones that it saw in the same text."""
        if not self.averages:
            return 1.0
        return float(seen.mean()) if len(seen) else 0.0


def place_tags(word_of_piece: NDArray[np.int64]) -> NDArray[np.float32]:
    """Begin, middle, end or single: where each piece stands in its word; float32 ``(pieces,)``, 0 for special pieces.

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
