"""What a regression of term weights is to predict (`bert_scorer`), from counts alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.weighting import Anchored
    from termweave.statistics import CorpusStatistics


def tfidf(asked: Anchored, given: Anchored, statistics: CorpusStatistics) -> NDArray[np.float64]:
    """Eq. 1 of LE-BS: ``(n_wy / |y|) * log(|Y| / (df_w + 1))`` of each term of `asked` in `given`; 0 for one that it lacks.

    Args:
        asked: The text x whose terms are weighed.
        given: The text y.
        statistics: Of all documents Y.

    Returns:
        float64 ``(terms of asked,)``; may be negative for a term that nearly every document holds.
    """
    counts = dict(zip(given.terms, _counts(given).tolist(), strict=True))
    length = sum(counts.values())
    return np.array([counts.get(term, 0) / length * _idf(term, statistics) if length else 0.0 for term in asked.terms])


def recall(given: Anchored, questions: Sequence[Anchored]) -> NDArray[np.float64]:
    """DeepCT's query-term recall: the share of a document's own questions that hold each of its terms; ``(terms,)``."""
    held = [set(question.terms) for question in questions]
    return np.array([sum(term in each for each in held) / max(1, len(held)) for term in given.terms])


def _idf(term: str, statistics: CorpusStatistics) -> float:
    return math.log(statistics.documents / (statistics.document_frequency.get(term, 0) + 1))


def _counts(text: Anchored) -> NDArray[np.int64]:
    """Occurrences of each term."""
    return np.bincount(text.term_of_word[text.term_of_word >= 0], minlength=len(text.terms))
