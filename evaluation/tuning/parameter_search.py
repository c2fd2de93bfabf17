"""Search for the best fusion and reranking parameters on the fitted queries.

`SPACE` declares what is tried. The coordinate search is deterministic. It starts once from the default (what `search` does
without a profile) and once from the default with rNN reranking. One parameter at a time takes its best value, and rounds repeat
until no value changes.

The same candidates are ranked thousands of times, without a request and without a loop over documents. A `TrialRanker` holds the candidates of
a set of queries. For every set of signals it arranges them once as matrices, with a row for each query and a column for each candidate. A trial
is then a weighted sum, a sort, and the measure of the ten best. The Jaccard similarities of rNN are stored for every order of candidates, so
trials that differ only in lambda cost almost nothing. A trial ranks exactly as `search.ranking.order` does; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.errors import UsageError
from termweave.rerank import neighbourhood
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.signals import fusion, modes
from termweave.signals.modes import Mode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.search.retrieval.candidates import Candidates

    Matrix = NDArray[np.float64]

#: Most rounds of the coordinate search; three were enough on every data set tried.
_ROUNDS = 5
#: A value replaces another if its gain is at least this many standard errors of the paired difference. Smaller gains are noise
#: of the fitted half that the other half does not confirm. Of 1, 1.5 and 2 this was the best on held-out halves.
WORTH = 1.5

Choice = tuple[Mode, ReciprocalNeighbours | None]
#: Parameters of rNN reranking, named as in `ReciprocalNeighbours` -> the values to try.
_NEIGHBOURS: Mapping[str, tuple[Any, ...]] = {
    "candidates": (20, 30, 40, 60, 80, 100),
    "k": (4, 6, 8, 10, 12, 15, 20, 25),
    "k_exp": (1, 2, 3, 4, 5, 7),
    "tau": (0.0, 0.25, 0.5, 0.67),
    "weight": (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
}
#: The parameters that tuning chooses, named as in a profile -> the values to try. `dense` is the share of vectors in the fusion, `lexical`
#: that of BM25 within the word signals, beside the learned weights.
SPACE: Mapping[str, tuple[Any, ...]] = {
    "fusion": tuple(fusion.METHODS),
    "dense": tuple(round(step / 20, 2) for step in range(21)),
    "lexical": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "rerank": (False, True),
    **_NEIGHBOURS,
}
_CUTOFF = 10
_DISCOUNTS = 1.0 / np.log2(np.arange(2, _CUTOFF + 2))
MEASURES = ("nDCG@10", "MRR@10")


def beyond_noise(differences: NDArray[np.float64]) -> bool:
    """Whether the mean of paired differences is positive by more than `WORTH` standard errors."""
    return bool(differences.mean() > WORTH * (float(differences.std()) / len(differences) ** 0.5))


class ParameterSearch:
    """Searches the space of parameters by trials on the fitted queries; a trial that was made before is not repeated.

    Args:
        ranker: Ranks the fitted queries and measures the rankings.
        signals: Signals of the index.
        progress: Called with (stage, trials so far, None) after each new trial.
    """

    def __init__(self, ranker: TrialRanker, signals: Sequence[str], progress: Callable[[str, int, int | None], None]) -> None:
        self._ranker = ranker
        self._progress = progress
        self._seen: dict[tuple[Any, ...], NDArray[np.float64]] = {}
        dense = "dense" in signals
        self._word_signal = next((name for name in modes.hybrid(signals) if name != "dense"), None)
        plain = ReciprocalNeighbours()
        share = 0.5 if dense and self._word_signal else float(dense)
        self.default: dict[str, Any] = {"fusion": fusion.DEFAULT, "dense": share, "lexical": 0.0, "rerank": False}
        self.default |= {name: getattr(plain, name) for name in _NEIGHBOURS}
        beside_weights = self._word_signal == "weights" and "lexical" in signals
        usable = {"fusion": True, "dense": dense and self._word_signal, "lexical": beside_weights}
        self._space = {name: values for name, values in SPACE.items() if usable.get(name, dense)}

    @property
    def trials(self) -> int:
        """Number of different trials so far."""
        return len(self._seen)

    def choice(self, point: Mapping[str, Any]) -> Choice:
        """Return the mode and the reranking of a point of the space."""
        words = 1.0 - point["dense"]
        shares = {"dense": point["dense"], "lexical": words * point["lexical"]}
        if self._word_signal is not None:
            shares[self._word_signal] = shares.get(self._word_signal, 0.0) + words * (1.0 - point["lexical"])
        weights = {name: share for name, share in sorted(shares.items()) if share > 0}
        reranking = ReciprocalNeighbours(**{name: point[name] for name in _NEIGHBOURS}) if point["rerank"] else None
        return Mode("tuned", weights, point["fusion"]), reranking

    def values(self, point: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the measure of every fitted query for a point of the space."""
        mode, reranking = self.choice(point)
        key = (tuple(mode.weights.items()), mode.fusion, reranking)
        if key not in self._seen:
            self._seen[key] = self._ranker.values(mode, reranking)
            self._progress("trying", self.trials, None)
        return self._seen[key]

    def descend(self) -> dict[str, Any]:
        """Run the coordinate search from the default and from the default with reranking; return the better result.

        The second start is necessary: with its default parameters reranking may lose where with other parameters it gains.
        The better result wins by any margin. Each step towards either was significant by itself, and a tuned profile must
        not lose to `--rerank rnn` with default parameters.
        """
        starts = [self.default]
        if "rerank" in self._space:
            starts.append({**self.default, "rerank": True})
        return max(map(self._descend_from, starts), key=lambda point: float(self.values(point).mean()))

    def descend_from_best(self) -> dict[str, Any]:
        """Run the coordinate search from the best of the simple searches: hybrid, and its signals alone, each with and without rNN.

        The simple searches are compared by their means alone: they are few, and a model that was trained on such questions can make one
        signal better than any fusion. The caller sees to it that with few questions chance does not choose (`learning.choice`).
        """
        shares = (self.default["dense"], 1.0, 0.0) if self._word_signal and "dense" in self._space else (self.default["dense"],)
        reranked = (False, True) if "rerank" in self._space else (False,)
        starts = [{**self.default, "dense": share, "rerank": rerank} for share in shares for rerank in reranked]
        return self._descend_from(max(starts, key=lambda point: float(self.values(point).mean())))

    def _descend_from(self, start: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"rerank"} if start["rerank"] else {"rerank", *_NEIGHBOURS}
        best = dict(start)
        for _ in range(_ROUNDS):
            previous = dict(best)
            for name in (each for each in self._space if each not in fixed):
                current = best
                for value in self._space[name]:
                    point = {**current, name: value}
                    if beyond_noise(self.values(point) - self.values(best)):
                        best = point
            if best == previous:
                break
        return best


@dataclass
class _CandidateMatrix:
    """The candidates of some signals as matrices ``(queries, width)``; the columns are in the order that breaks ties.

    Attributes:
        documents: Ids of the candidates, one list for each query.
        inside: ``(queries,)``, number of candidates within the window of at least one signal's list; only these are reranked.
        filled: ``(queries, width)``, whether the cell has a candidate.
        rows: ``(queries, width)``, row of the candidate's vector in `TrialRanker._decoded`.
        gains: ``(queries, width)``, grade of the candidate; 0 if it is not judged, -1 if the cell is empty.
        signals: (fusion method, signal) -> normalised values, ``(queries, width)``, and how much the list of the signal counts, ``(queries,)``.
    """

    documents: list[list[str]]
    inside: NDArray[np.int64]
    filled: NDArray[np.bool_]
    rows: NDArray[np.int64]
    gains: Matrix
    signals: dict[tuple[str, str], tuple[Matrix, Matrix]] = field(default_factory=dict)


class TrialRanker:
    """Ranks the candidates of judged queries in different ways and measures the rankings.

    Args:
        candidates: The candidates of each query, with vectors if reranking is tried.
        judgements: The judgements of each query: document id -> grade.
        relevant_from: Lowest grade that counts as relevant for MRR.
        measure: "nDCG@10" or "MRR@10".
    """

    def __init__(
        self, candidates: Sequence[Candidates], judgements: Sequence[Mapping[str, int]], relevant_from: int, measure: str
    ) -> None:
        if measure not in MEASURES:
            raise UsageError(f"Tuning cannot optimise {measure!r}.", f"Choose one of: {', '.join(MEASURES)}.")
        self._candidates = candidates
        self._judgements = judgements
        self._relevant_from = relevant_from
        self._measure = measure
        self._layouts: dict[tuple[str, ...], _CandidateMatrix] = {}
        self._vectors: list[tuple[dict[str, int], NDArray[np.float16]] | None] = [None] * len(candidates)
        self._neighbours: dict[tuple[bytes, int, int, int, float], tuple[Matrix, Matrix]] = {}
        best = [sorted((grade for grade in each.values() if grade > 0), reverse=True)[:_CUTOFF] for each in judgements]
        self._ideal = np.array([float(np.dot(grades, _DISCOUNTS[: len(grades)])) for grades in best])

    def values(self, mode: Mode, reranking: ReciprocalNeighbours | None) -> Matrix:
        """Rank the candidates in a mode, with or without reranking, and return the measure of every query ``(queries,)``."""
        layout = self._layout(tuple(mode.weights))
        fused = self._fused(layout, mode)
        # The columns are in the order that breaks ties, so the sort must be stable.
        order = np.argsort(-fused, axis=1, kind="stable")
        if reranking is not None:
            order = self._reranked(layout, fused, order, reranking)
        return self._measured(np.take_along_axis(layout.gains, order[:, :_CUTOFF], axis=1))

    def _fused(self, layout: _CandidateMatrix, mode: Mode) -> Matrix:
        """Fuse the signals as `fusion.fuse` does; empty cells get -1."""
        counts = {name: weight * self._signal(layout, mode.fusion, name)[1] for name, weight in mode.weights.items()}
        total: Matrix = np.sum(list(counts.values()), axis=0)
        silent = ~(total > 0)
        if silent.any():
            for name, weight in mode.weights.items():
                present = np.array([float(bool(candidates.lists[name].within)) for candidates in self._candidates])
                counts[name] = np.where(silent, weight * present, counts[name])
            total = np.sum(list(counts.values()), axis=0)
        total = np.where(total > 0, total, 1.0)
        fused = np.zeros_like(layout.gains)
        for name in mode.weights:
            fused += (counts[name] / total)[:, None] * self._signal(layout, mode.fusion, name)[0]
        return np.where(layout.filled, fused, -1.0)

    def _reranked(
        self, layout: _CandidateMatrix, fused: Matrix, order: NDArray[np.int64], reranking: ReciprocalNeighbours
    ) -> NDArray[np.int64]:
        """Return the order after reranking: the best candidates in their new order, then the rest."""
        heads = order[:, : reranking.candidates]
        jaccard, similarity = self._near(layout, heads, reranking)
        near = similarity if reranking.similarity == "dense" else np.take_along_axis(fused, heads, axis=1)
        scores = reranking.weight * near + (1 - reranking.weight) * jaccard
        positions = np.arange(heads.shape[1])
        # Candidates outside the window stay below the others, in their order; inner products are at least -1.
        scores = np.where(positions < layout.inside[:, None], scores, -2.0 - positions)
        reordered = np.argsort(-scores, axis=1, kind="stable")  # candidates with equal scores keep their order
        return np.concatenate([np.take_along_axis(heads, reordered, axis=1), order[:, reranking.candidates :]], axis=1)

    def _near(self, layout: _CandidateMatrix, heads: NDArray[np.int64], reranking: ReciprocalNeighbours) -> tuple[Matrix, Matrix]:
        """Return the Jaccard similarity and the inner product of each of the best candidates with its query."""
        key = (heads.tobytes(), id(layout), reranking.k, reranking.k_exp, reranking.tau)
        if key not in self._neighbours:
            jaccard, similarity = np.zeros(heads.shape), np.zeros(heads.shape)
            for row, (candidates, head) in enumerate(zip(self._candidates, heads, strict=True)):
                documents = head[: layout.inside[row]]
                if len(documents) and candidates.query.vector is not None:
                    vectors = self._decoded(row)[1][layout.rows[row, documents]].astype(np.float32)
                    near = neighbourhood(candidates.query.vector, vectors, reranking.rules)
                    jaccard[row, : len(documents)], similarity[row, : len(documents)] = near.jaccard, near.similarity
            self._neighbours[key] = jaccard, similarity
        return self._neighbours[key]

    def _measured(self, gains: Matrix) -> Matrix:
        """Compute the measure from the gains of the best documents ``(queries, <= 10)``."""
        if self._measure == "nDCG@10":
            reached: Matrix = np.maximum(gains, 0.0) @ _DISCOUNTS[: gains.shape[1]]
            share: Matrix = np.divide(reached, self._ideal, out=np.zeros_like(reached), where=self._ideal > 0)
            return share
        relevant = gains >= self._relevant_from
        first = relevant.argmax(axis=1)
        return np.where(relevant.any(axis=1), 1.0 / (first + 1), 0.0)

    def _layout(self, signals: tuple[str, ...]) -> _CandidateMatrix:
        if signals not in self._layouts:
            ordered = []
            for candidates in self._candidates:
                best: dict[str, int] = {}
                for name in signals:
                    for rank, document in enumerate(candidates.lists[name].scores):
                        best[document] = min(rank, best.get(document, rank))
                ordered.append(sorted(best, key=lambda document, best=best: (best[document], document)))  # type: ignore[misc]
            inside = [
                len({document for name in signals for document in islice(each.lists[name].scores, each.lists[name].within)})
                for each in self._candidates
            ]
            width = max((1, *(len(documents) for documents in ordered)))
            filled = np.zeros((len(ordered), width), dtype=bool)
            rows = np.zeros(filled.shape, dtype=np.int64)
            gains = np.full(filled.shape, -1.0)
            for row, (documents, judged) in enumerate(zip(ordered, self._judgements, strict=True)):
                filled[row, : len(documents)] = True
                places = self._decoded(row)[0]
                keys = self._candidates[row].keys(documents, signals, first="dense")
                rows[row, : len(documents)] = [places[key] for key in keys]
                gains[row, : len(documents)] = [judged.get(document, 0) for document in documents]
            self._layouts[signals] = _CandidateMatrix(ordered, np.array(inside, dtype=np.int64), filled, rows, gains)
        return self._layouts[signals]

    def _decoded(self, row: int) -> tuple[dict[str, int], NDArray[np.float16]]:
        """Return key of a candidate -> row, and the matrix with these rows: the vectors of all candidates of a query, decoded once, as float16."""
        decoded = self._vectors[row]
        if decoded is None:
            candidates = self._candidates[row]
            lists = candidates.lists.items()
            keys = list(dict.fromkeys(key for name, ranked in lists for key in candidates.keys(list(ranked.scores), [name])))
            vectors = np.zeros((len(keys), 0), np.float16)
            if candidates.query.vector is not None:
                vectors = candidates.matrix(keys).astype(np.float16)
            decoded = self._vectors[row] = ({key: position for position, key in enumerate(keys)}, vectors)
        return decoded

    def _signal(self, layout: _CandidateMatrix, by: str, name: str) -> tuple[Matrix, Matrix]:
        if (by, name) not in layout.signals:
            method = fusion.method(by)
            matrix = np.zeros_like(layout.gains)
            for row, (candidates, documents) in enumerate(zip(self._candidates, layout.documents, strict=True)):
                ranked = candidates.lists[name]
                worth = dict(zip(ranked.scores, method.values(ranked), strict=True))
                matrix[row, : len(documents)] = [worth.get(document, 0.0) for document in documents]
            layout.signals[by, name] = matrix, np.array([method.extent(each.lists[name]) for each in self._candidates])
        return layout.signals[by, name]
