"""Collection statistics: the counts of a corpus's documents and terms that BM25 and idf use.

`indexer` counts them in one streaming pass, encoders use them, and each generation stores them, so that a query is weighted with
the same figures as its documents.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

#: A term has moved if its idf differs by more than `_MOVED`; a drift is large if more than the share `_LARGE` of terms has moved,
_MOVED, _LARGE = 0.5, 0.2
#: or if documents are longer or shorter by this factor.
_LONGER = 1.5


@dataclass(frozen=True)
class CorpusStatistics:
    """Counts of a corpus's documents and terms, for one analysis (way to make terms).

    Attributes:
        analysis: Id of the analysis that makes the terms (a model folder names it).
        documents: Number of documents, N.
        average_length: Mean number of terms per document (0 for an empty corpus).
        document_frequency: Term -> number of documents that contain it.
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
        """Hash of the analysis and all counts: 16 hexadecimal digits."""
        return blake2b(self._plain(), digest_size=8).hexdigest()

    def to_bytes(self) -> bytes:
        """The statistics as compressed bytes; the same statistics always give the same bytes."""
        return zlib.compress(self._plain(), 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> CorpusStatistics:
        """Read statistics from the bytes that `to_bytes` made.

        Raises:
            ValueError: The bytes are not statistics.
        """
        try:
            import orjson  # noqa: PLC0415 - needed only when a generation is opened

            loaded = orjson.loads(zlib.decompress(data))
            return cls(loaded["analysis"], loaded["documents"], loaded["average_length"], loaded["document_frequency"])
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not corpus statistics: {error}") from error

    def _plain(self) -> bytes:
        import orjson  # noqa: PLC0415

        counts = {"analysis": self.analysis, "documents": self.documents, "average_length": self.average_length}
        return orjson.dumps({**counts, "document_frequency": dict(self.document_frequency)}, option=orjson.OPT_SORT_KEYS)

    def drift(self, corpus: CorpusStatistics, *, least: int = 1) -> Drift:
        """Compare these statistics with new counts of the corpus.

        Args:
            corpus: Current statistics of the corpus, or of a sample of it, for the same analysis.
            least: Terms in fewer documents than this number are ignored, because a sample estimates their idf badly.

        Raises:
            ValueError: The analysis differs.
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
    """The difference between a corpus and the statistics that its documents are weighted with.

    Attributes:
        moved: Share of postings (pairs of document and term) whose idf differs by more than .5, which means 1.6 times as common.
        unseen: Share of postings whose term is not in the statistics.
        length: Average document length of the corpus, divided by that in the statistics.
    """

    moved: float
    unseen: float
    length: float

    @property
    def large(self) -> bool:
        """Whether the difference is so large that the corpus should be counted again; docs/impacts.md has measurements."""
        return self.moved > _LARGE or not 1 / _LONGER < self.length < _LONGER

    def __str__(self) -> str:
        """The drift as a sentence for the user."""
        return (
            f"{self.moved:.0%} of the corpus's terms in documents have an idf that moved by more than {_MOVED}, {self.unseen:.0%} were never "
            f"counted, and its documents are {self.length:.2f} times as long as the documents that were counted."
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
        self._frequency: Counter[str] = Counter()

    def add(self, terms: Iterable[str]) -> None:
        """Count one document.

        Args:
            terms: All terms of the document, repetitions included.
        """
        terms = list(terms)
        self._documents += 1
        self._length += len(terms)
        self._frequency.update(set(terms))

    def result(self) -> CorpusStatistics:
        """The statistics of all documents added so far."""
        average = self._length / self._documents if self._documents else 0.0
        return CorpusStatistics(self._analysis, self._documents, average, dict(self._frequency))
