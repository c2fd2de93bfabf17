"""Batches of labelled pairs: right answers, and for each question wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class PairBatch:
    """The pairs of one step.

    Attributes:
        queries: int64 ``(Q,)``, indices of training queries.
        documents: int64 ``(D,)``, distinct documents.
        rows: int64 ``(P,)``, for each pair the position of its query in `queries`.
        columns: int64 ``(P,)``, for each pair the position of its document in `documents`.
        labels: float64 ``(P,)``, the label l of each pair.
    """

    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    labels: NDArray[np.float64]

    def pairs(self) -> list[tuple[int, int]]:
        """(query, document) of each pair, as indices into the collection."""
        return list(zip(self.queries[self.rows].tolist(), self.documents[self.columns].tolist(), strict=True))


@dataclass(frozen=True)
class PairSampler:
    """Draws positive pairs and, for each, pairs with l = 0.

    Attributes:
        relevant: For each training query the documents that answer it.
        known: For each training query the documents that are no wrong answers.
        hard: For each training query wrong answers that look right; empty: none.
        documents: Number of documents, from which random negatives are drawn.
        hard_drawn: Hard negatives of a query in a batch.
        random_drawn: Random negatives of a query in a batch.
        in_batch: Whether every other document of the batch makes a pair with the query, too.
    """

    relevant: Sequence[frozenset[int]]
    known: Sequence[frozenset[int]]
    hard: Sequence[NDArray[np.int64]]
    documents: int
    hard_drawn: int = 1
    random_drawn: int = 1
    in_batch: bool = False

    def draw(self, queries: NDArray[np.int64], generator: np.random.Generator) -> PairBatch:
        """Draw the pairs of these queries.

        Returns:
            One pair with l = 1 of each query, and its negatives. A document that answers a query is never a negative of it; where
            `in_batch` meets a second right answer, its label is 1.
        """
        own = [self._documents_of(query, generator) for query in queries.tolist()]
        documents = np.unique(np.concatenate(own)) if own else np.zeros(0, np.int64)
        if self.in_batch:
            rows, columns = (each.ravel() for each in np.indices((len(queries), len(documents))))
        else:
            rows = np.repeat(np.arange(len(queries)), [len(each) for each in own])
            columns = np.searchsorted(documents, np.concatenate(own))
        right = self._are_right(queries[rows], documents[columns])
        kept = np.array(
            [answer or y not in self.known[x] for answer, x, y in zip(right, queries[rows], documents[columns], strict=True)]
        )
        return PairBatch(queries, documents, rows[kept], columns[kept], right[kept].astype(np.float64))

    def _documents_of(self, query: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """The right answer that is drawn, then hard negatives, then random ones."""
        answers = sorted(self.relevant[query])
        drawn = [answers[int(generator.integers(len(answers)))]]
        if self.hard and len(self.hard[query]):
            drawn += generator.permutation(self.hard[query])[: self.hard_drawn].tolist()
        if self.random_drawn:
            others = generator.permutation(self.documents)[: self.random_drawn + len(self.known[query]) + len(drawn)].tolist()
            drawn += [each for each in others if each not in self.known[query] and each not in drawn][: self.random_drawn]
        return np.array(drawn, dtype=np.int64)

    def _are_right(self, queries: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.bool_]:
        pairs = zip(queries.tolist(), documents.tolist(), strict=True)
        return np.array([document in self.relevant[query] for query, document in pairs], dtype=np.bool_)
