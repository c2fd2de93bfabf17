"""The anchor of a learned weight: the BM25 impact of the same term in the same document.

    bm25(t, d) = idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * dl / avgdl))      (Robertson and Zaragoza 2009, eq. 3.15)

with Lucene's idf, ``ln(1 + (N - df + .5) / (df + .5))``. Lucene omits the constant ``(k1 + 1)`` since version 8.0. It is
kept here, so that a term which occurs once in a document of average length has exactly its idf as impact. The ranking is the same.

Worked example: N = 10, df = 1, so idf = ln(1 + 9.5 / 1.5) = 1.99; tf = 2 in a document of average length with k1 = 1.2:
2 * 2.2 / (2 + 1.2) = 1.375; the impact is 2.74.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.statistics import CorpusStatistics


@dataclass(frozen=True, slots=True)
class BM25:
    """BM25 with its two parameters.

    Attributes:
        k1: How fast repetitions of a term stop counting.
        b: How strongly the length of a document counts, 0 to 1.
    """

    k1: float = 1.2
    b: float = 0.75

    @classmethod
    def from_anchor(cls, anchor: Mapping[str, Any]) -> BM25:
        """Read the parameters from the `anchor` of a manifest."""
        return cls(**{name: float(anchor[name]) for name in ("k1", "b") if name in anchor})

    def idf(self, terms: Sequence[str], statistics: CorpusStatistics) -> NDArray[np.float64]:
        """`CorpusStatistics.idf` of many terms: float64 ``(len(terms),)``; a term that was never counted has df 0."""
        get = statistics.document_frequency.get
        frequencies = np.fromiter((get(term, 0) for term in terms), dtype=np.float64, count=len(terms))
        rest = np.maximum(statistics.documents - frequencies, 0.0)
        result: NDArray[np.float64] = np.log1p((rest + 0.5) / (frequencies + 0.5))
        return result

    def impacts(
        self,
        idf: NDArray[np.float64],
        term_frequencies: NDArray[np.float64],
        length: int,
        statistics: CorpusStatistics,
    ) -> NDArray[np.float64]:
        """The BM25 impact of each term of one document.

        Args:
            idf: The idf of each term, ``(n,)``.
            term_frequencies: Occurrences of each term in the whole document, ``(n,)``.
            length: Number of terms of the whole document, repetitions included.
            statistics: The statistics of the corpus; only `average_length` is used.

        Returns:
            float64 ``(n,)``.
        """
        average = statistics.average_length
        relative = length / average if average > 0 else 1.0
        norm = self.k1 * (1.0 - self.b + self.b * relative)
        result: NDArray[np.float64] = idf * term_frequencies * (self.k1 + 1.0) / (term_frequencies + norm)
        return result
