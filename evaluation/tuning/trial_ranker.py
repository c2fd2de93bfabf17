"""Thousands of rankings of the same candidates: what `tune` tries costs no request and no loop over documents.

A `Bench` holds the candidates of a set of queries. For every choice of signals it lays them out once as matrices, a row a
query, a column a candidate; a trial is then a weighted sum, a sort and a look at the ten best. Neighbours' J is kept for every
candidate order that was asked for, so that trials which differ only in lambda cost nothing more. A trial ranks
exactly as `search.ranking.order` does (a test holds them to each other).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import UsageError
from termweave.rerank import Rules, neighbourhood
from termweave.search import fusion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.search.candidates import Candidates
    from termweave.search.modes import Mode
    from termweave.search.ranking import Reranking

    Matrix = NDArray[np.float64]

_CUTOFF = 10
_DISCOUNTS = 1.0 / np.log2(np.arange(2, _CUTOFF + 2))
MEASURES = ("nDCG@10", "MRR@10")


@dataclass
class _Layout:
    """The candidates of some signals as matrices ``(queries, width)``; columns in the order that breaks ties.

    Attributes:
        documents: Ids, a list a query.
        inside: ``(queries,)``, how many are in the window of a list: those may be reranked.
        filled: ``(queries, width)``, where there is a candidate.
        rows: ``(queries, width)``, the candidate's row in `Bench._decoded`.
        by_id: ``(queries, width)``, its place among the candidates of the query in the order of ids.
        gains: ``(queries, width)``, its grade; 0 unjudged, -1 where there is none.
        values: (fusion method, signal) -> normalised values, ``(queries, width)``.
        extents: (fusion method, signal) -> how much the list counts, ``(queries,)``.
    """

    documents: list[list[str]]
    inside: NDArray[np.int64]
    filled: NDArray[np.bool_]
    rows: NDArray[np.int64]
    by_id: NDArray[np.int64]
    gains: Matrix
    values: dict[tuple[str, str], Matrix] = field(default_factory=dict)
    extents: dict[tuple[str, str], Matrix] = field(default_factory=dict)


class Bench:
    """Candidates of judged queries, ready for trials.

    Args:
        candidates: One a query, with vectors where reranking is tried.
        judgements: One a query: document id -> grade.
        relevant_from: Lowest grade that counts for MRR.
        measure: "nDCG@10" or "MRR@10".
    """

    def __init__(
        self, candidates: Sequence[Candidates], judgements: Sequence[Mapping[str, int]], relevant_from: int, measure: str
    ) -> None:
        if measure not in MEASURES:
            raise UsageError(f"Tuning cannot go by {measure!r}.", f"Choose one of: {', '.join(MEASURES)}.")
        self._candidates = candidates
        self._judgements = judgements
        self._relevant_from = relevant_from
        self._measure = measure
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._vectors: list[tuple[dict[str, int], NDArray[np.float16]] | None] = [None] * len(candidates)
        self._neighbours: dict[tuple[bytes, int, int, int, float], tuple[Matrix, Matrix]] = {}
        best = [sorted((grade for grade in each.values() if grade > 0), reverse=True)[:_CUTOFF] for each in judgements]
        self._ideal = np.array([float(np.dot(grades, _DISCOUNTS[: len(grades)])) for grades in best])

    def values(self, mode: Mode, reranking: Reranking | None) -> Matrix:
        """The measure of every query ``(queries,)``."""
        layout = self._layout(tuple(mode.weights))
        fused = self._fused(layout, mode)
        # Columns are in the order that breaks ties, and the sort is stable.
        order = np.argsort(-fused, axis=1, kind="stable")
        if reranking is not None:
            order = self._reranked(layout, fused, order, reranking)
        return self._measured(np.take_along_axis(layout.gains, order[:, :_CUTOFF], axis=1))

    def _fused(self, layout: _Layout, mode: Mode) -> Matrix:
        """As `fusion.fuse`; empty cells -1."""
        counts = {name: weight * self._extent(layout, mode.fusion, name) for name, weight in mode.weights.items()}
        total: Matrix = np.sum(list(counts.values()), axis=0)
        silent = ~(total > 0)
        if silent.any():
            for name, weight in mode.weights.items():
                there = np.array([float(bool(each.lists[name].within)) for each in self._candidates])
                counts[name] = np.where(silent, weight * there, counts[name])
            total = np.sum(list(counts.values()), axis=0)
        total = np.where(total > 0, total, 1.0)
        fused = np.zeros_like(layout.gains)
        for name in mode.weights:
            fused += (counts[name] / total)[:, None] * self._value(layout, mode.fusion, name)
        return np.where(layout.filled, fused, -1.0)

    def _reranked(self, layout: _Layout, fused: Matrix, order: NDArray[np.int64], reranking: Reranking) -> NDArray[np.int64]:
        """The heads in their new order; what lies below cannot pass them."""
        heads = order[:, : reranking.candidates]
        jaccard, similarity = self._near(layout, heads, reranking)
        near = similarity if reranking.similarity == "dense" else np.take_along_axis(fused, heads, axis=1)
        scores = reranking.weight * near + (1 - reranking.weight) * jaccard
        places = np.arange(heads.shape[1])
        # What lies outside stands below all, in its order; inner products may be -1.
        scores = np.where(places < layout.inside[:, None], scores, -2.0 - places)
        again = np.lexsort((np.take_along_axis(layout.by_id, heads, axis=1), -scores), axis=1)
        return np.concatenate([np.take_along_axis(heads, again, axis=1), order[:, reranking.candidates :]], axis=1)

    def _near(self, layout: _Layout, heads: NDArray[np.int64], reranking: Reranking) -> tuple[Matrix, Matrix]:
        """J and inner product of every candidate of the heads with its query."""
        key = (heads.tobytes(), id(layout), reranking.k, reranking.k_exp, reranking.tau)
        if key not in self._neighbours:
            jaccard, similarity = np.zeros(heads.shape), np.zeros(heads.shape)
            for row, (candidates, head) in enumerate(zip(self._candidates, heads, strict=True)):
                documents = head[: layout.inside[row]]
                if len(documents) and candidates.query.vector is not None:
                    vectors = self._decoded(row)[1][layout.rows[row, documents]].astype(np.float32)
                    rules = Rules(reranking.k, reranking.k_exp, reranking.tau, clamp=True)
                    near = neighbourhood(candidates.query.vector, vectors, rules)
                    jaccard[row, : len(documents)], similarity[row, : len(documents)] = near.jaccard, near.similarity
            self._neighbours[key] = jaccard, similarity
        return self._neighbours[key]

    def _measured(self, gains: Matrix) -> Matrix:
        """The measure from the gains of the best ``(queries, <= 10)``."""
        if self._measure == "nDCG@10":
            reached: Matrix = np.maximum(gains, 0.0) @ _DISCOUNTS[: gains.shape[1]]
            share: Matrix = np.divide(reached, self._ideal, out=np.zeros_like(reached), where=self._ideal > 0)
            return share
        relevant = gains >= self._relevant_from
        first = relevant.argmax(axis=1)
        return np.where(relevant.any(axis=1), 1.0 / (first + 1), 0.0)

    def _layout(self, signals: tuple[str, ...]) -> _Layout:
        if signals not in self._layouts:
            ordered = []
            for each in self._candidates:
                best: dict[str, int] = {}
                for name in signals:
                    for rank, document in enumerate(each.lists[name].scores):
                        best[document] = min(rank, best.get(document, rank))
                ordered.append(sorted(best, key=lambda document, best=best: (best[document], document)))  # type: ignore[misc]
            inside = [
                len({document for name in signals for document in islice(each.lists[name].scores, each.lists[name].within)})
                for each in self._candidates
            ]
            width = max((1, *(len(documents) for documents in ordered)))
            filled = np.zeros((len(ordered), width), dtype=bool)
            by_id, rows = np.zeros(filled.shape, dtype=np.int64), np.zeros(filled.shape, dtype=np.int64)
            gains = np.full(filled.shape, -1.0)
            for row, (documents, judged) in enumerate(zip(ordered, self._judgements, strict=True)):
                filled[row, : len(documents)] = True
                places = self._decoded(row)[0]
                rows[row, : len(documents)] = [places[document] for document in documents]
                by_id[row, np.argsort(np.array(documents, dtype=object), kind="stable")] = np.arange(len(documents))
                gains[row, : len(documents)] = [judged.get(document, 0) for document in documents]
            self._layouts[signals] = _Layout(ordered, np.array(inside, dtype=np.int64), filled, rows, by_id, gains)
        return self._layouts[signals]

    def _decoded(self, row: int) -> tuple[dict[str, int], NDArray[np.float16]]:
        """Document -> row, and the vectors of all candidates of a query, decoded once; half the memory that search needs."""
        kept = self._vectors[row]
        if kept is None:
            candidates = self._candidates[row]
            documents = list(dict.fromkeys(document for ranked in candidates.lists.values() for document in ranked.scores))
            vectors = np.zeros((len(documents), 0), np.float16)
            if candidates.query.vector is not None:
                vectors = candidates.matrix(documents).astype(np.float16)
            kept = self._vectors[row] = ({document: place for place, document in enumerate(documents)}, vectors)
        return kept

    def _value(self, layout: _Layout, by: str, name: str) -> Matrix:
        if (by, name) not in layout.values:
            method = fusion.method(by)
            matrix = np.zeros_like(layout.gains)
            for row, (each, documents) in enumerate(zip(self._candidates, layout.documents, strict=True)):
                ranked = each.lists[name]
                worth = dict(zip(ranked.scores, method.values(ranked), strict=True))
                matrix[row, : len(documents)] = [worth.get(document, 0.0) for document in documents]
            layout.values[by, name] = matrix
        return layout.values[by, name]

    def _extent(self, layout: _Layout, by: str, name: str) -> Matrix:
        if (by, name) not in layout.extents:
            layout.extents[by, name] = np.array([fusion.method(by).extent(each.lists[name]) for each in self._candidates])
        return layout.extents[by, name]
