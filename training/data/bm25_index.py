"""An inverted index in numpy: exact sparse dot products, for hard negatives and for measuring models without an engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.term_weighting import BM25, Kind, anchored
from termweave.records import TermWeights
from termweave.support.batching import in_parts
from termweave.training.data.pairs import ANALYSED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Analysis
    from termweave.statistics import CorpusStatistics


class SparseIndex:
    """An inverted index: for each term the documents that contain it, with their weights.

    Example:
        >>> import numpy as np
        >>> index = SparseIndex([TermWeights(("cat",), np.array([2.0], dtype=np.float32)), TermWeights((), np.zeros(0, np.float32))])
        >>> index.search(TermWeights(("cat", "dog"), np.array([1.5, 1.0], dtype=np.float32)), 10)
        (array([0]), array([3.]))
    """

    def __init__(self, documents: Iterable[TermWeights]) -> None:
        vocabulary: dict[str, int] = {}
        terms: list[int] = []
        lengths: list[int] = []
        weights: list[NDArray[np.float32]] = []
        for document in documents:
            terms.extend(vocabulary.setdefault(term, len(vocabulary)) for term in document.terms)
            lengths.append(len(document))
            weights.append(document.weights)
        self.documents = len(lengths)
        self._vocabulary = vocabulary
        columns = np.array(terms, dtype=np.int64)
        order = np.argsort(columns, kind="stable")
        self._document = np.repeat(np.arange(len(lengths)), lengths)[order]
        self._weight = (np.concatenate(weights) if weights else np.zeros(0, np.float32))[order].astype(np.float64)
        self._starts = np.searchsorted(columns[order], np.arange(len(vocabulary) + 1))

    def scores(self, query: TermWeights) -> NDArray[np.float64]:
        """Return the dot product of a query with every document: float64 ``(documents,)``."""
        scores = np.zeros(self.documents)
        for term, weight in zip(query.terms, query.weights.tolist(), strict=True):
            if (column := self._vocabulary.get(term)) is not None:
                postings = slice(self._starts[column], self._starts[column + 1])
                scores[self._document[postings]] += weight * self._weight[postings]
        return scores

    def search(self, query: TermWeights, k: int, spared: Collection[int] = ()) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the k best documents with a score above 0, best first, ties by index; documents in `spared` are left out."""
        scores = self.scores(query)
        scores[list(spared)] = 0.0
        if len(scores) > k:
            threshold = np.partition(scores, -k)[-k]
            candidates = np.flatnonzero((scores >= threshold) & (scores > 0))
        else:
            candidates = np.flatnonzero(scores > 0)
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
        return best, scores[best]

    def rankings(
        self, queries: Sequence[TermWeights], k: int, spared: Sequence[Collection[int]] = ()
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Return the result of `search` for each query; `spared` has one collection of documents for each query, (): no document is left out."""
        left_out = spared or [()] * len(queries)
        return [self.search(query, k, without) for query, without in zip(queries, left_out, strict=True)]

    def negatives(self, queries: Sequence[TermWeights], right: Sequence[Collection[int]], depth: int) -> list[NDArray[np.int64]]:
        """Return hard negatives of each query: the `depth` documents that BM25 ranks best, without the documents in `right`, which may answer."""
        ranked = self.rankings(queries, depth)
        return [best[~np.isin(best, list(answers))] for (best, _), answers in zip(ranked, right, strict=True)]


def bm25_weights(
    texts: Sequence[str], analysis: Analysis, statistics: CorpusStatistics, bm25: BM25, kind: Kind
) -> list[TermWeights]:
    """Return BM25 impacts of the terms of documents, or occurrences of the terms of queries: the weights of an untrained anchored model."""
    weights = []
    for part in in_parts(texts, ANALYSED):
        for words in analysis.words(part):
            anchor = anchored(words, statistics, bm25, kind)
            weights.append(TermWeights(anchor.terms, anchor.anchor.astype(np.float32)))
    return weights
