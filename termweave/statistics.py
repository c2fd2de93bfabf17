"""Collection statistics: what BM25 and idf need to know of a corpus.

`indexer` counts them in one streaming pass, encoders take them as input, a generation keeps them, so that
a query is weighted with the figures its documents were weighted with.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class CorpusStatistics:
    """Counts over one corpus under one analysis.

    Attributes:
        analysis: Id of the analysis that made the terms (a model folder names it).
        documents: Number of documents, N.
        average_length: Mean number of terms of a document (0 for an empty corpus).
        document_frequency: term -> number of documents that hold it.
    """

    analysis: str
    documents: int
    average_length: float
    document_frequency: Mapping[str, int]

    def idf(self, term: str) -> float:
        """Lucene's BM25 idf, ``ln(1 + (N - df + .5) / (df + .5))``; an unseen term has df 0."""
        df = self.document_frequency.get(term, 0)
        return math.log1p(max(self.documents - df, 0) / (df + 0.5) + 0.5 / (df + 0.5))

    @cached_property
    def hash(self) -> str:
        """16 hexadecimal digits over everything above."""
        return blake2b(self._plain(), digest_size=8).hexdigest()

    def to_bytes(self) -> bytes:
        """Compressed, reproducible: the same statistics give the same bytes."""
        return zlib.compress(self._plain(), 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> CorpusStatistics:
        """The inverse of `to_bytes`.

        Raises:
            ValueError: The bytes are not statistics.
        """
        try:
            import orjson  # noqa: PLC0415 - only when a generation is opened

            loaded = orjson.loads(zlib.decompress(data))
            return cls(loaded["analysis"], loaded["documents"], loaded["average_length"], loaded["document_frequency"])
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not corpus statistics: {error}") from error

    def _plain(self) -> bytes:
        import orjson  # noqa: PLC0415

        return orjson.dumps(
            {
                "analysis": self.analysis,
                "documents": self.documents,
                "average_length": self.average_length,
                "document_frequency": dict(self.document_frequency),
            },
            option=orjson.OPT_SORT_KEYS,
        )


class StatisticsCounter:
    """Counts `CorpusStatistics` document by document.

    Example:
        >>> counter = StatisticsCounter("words")
        >>> counter.add(["cat", "sat", "cat"])
        >>> counter.add(["dog"])
        >>> statistics = counter.result()
        >>> statistics.documents, statistics.average_length, statistics.document_frequency["cat"]
        (2, 2.0, 1)
    """

    def __init__(self, analysis: str) -> None:
        self._analysis = analysis
        self._documents = 0
        self._length = 0
        self._frequency: dict[str, int] = {}

    def add(self, terms: Iterable[str]) -> None:
        """Count one document, given all its terms, repetitions included."""
        terms = list(terms)
        self._documents += 1
        self._length += len(terms)
        for term in set(terms):
            self._frequency[term] = self._frequency.get(term, 0) + 1

    def result(self) -> CorpusStatistics:
        """The statistics of everything added so far."""
        average = self._length / self._documents if self._documents else 0.0
        return CorpusStatistics(self._analysis, self._documents, average, dict(self._frequency))
