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

#: An idf that differs by more has moved, and above this share of them a drift is large.
_MOVED, _LARGE = 0.5, 0.2
#: So much longer or shorter documents make it large, too.
_LONGER = 1.5


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

    def drift(self, corpus: CorpusStatistics, *, least: int = 1) -> Drift:
        """How far a corpus, counted anew, has moved from these statistics.

        Args:
            corpus: Statistics of the corpus as it is now, under the same analysis, or of a sample of it.
            least: Terms that fewer of its documents hold are not looked at: a sample knows their idf too badly.

        Raises:
            ValueError: Another analysis.
        """
        if corpus.analysis != self.analysis:
            raise ValueError(f"statistics under {corpus.analysis!r} cannot be compared with those under {self.analysis!r}")
        moved = unseen = postings = 0
        for term, df in corpus.document_frequency.items():
            if df < least:
                continue
            postings += df
            unseen += df if term not in self.document_frequency else 0
            moved += df if abs(self.idf(term) - corpus.idf(term)) > _MOVED else 0
        count = max(postings, 1)
        lengths = corpus.average_length / self.average_length if self.average_length and corpus.average_length else 1.0
        return Drift(moved / count, unseen / count, lengths)


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a corpus has moved from the statistics that weigh it.

    Attributes:
        moved: Share of its postings (pairs of document and term) whose idf differs by more than .5: a term that is 1.6 times as common.
        unseen: Share of its postings whose term was never counted.
        length: Its average length by the one that was counted.
    """

    moved: float
    unseen: float
    length: float

    @property
    def large(self) -> bool:
        """Whether counting again is worth it; what drift costs is measured in docs/impacts.md."""
        return self.moved > _LARGE or not 1 / _LONGER < self.length < _LONGER

    def __str__(self) -> str:
        """One sentence for a plan."""
        return (
            f"{self.moved:.0%} of the corpus's terms in documents have an idf that moved by more than {_MOVED}, {self.unseen:.0%} were never "
            f"counted, and its documents are {self.length:.2f} times as long as those that were."
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
