"""The development measure: rank held-out questions by exact search in memory, without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.term_weighting import BM25
from termweave.evaluation.measures import LEADING, per_query
from termweave.records import Run, TermWeights
from termweave.signals.weights import Weights, scale
from termweave.training.data.bm25_index import SparseIndex, bm25_weights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from numpy.typing import NDArray

    from termweave.records import Encoding
    from termweave.training.data.pairs import Pairs
    from termweave.training.setup import RunSetup

#: Numbers in a block of scores, 64 MB of float32.
_BLOCK = 16_000_000


@dataclass(frozen=True)
class DevelopmentSet:
    """Held-out questions of one data set, with the term weights of BM25. Each kind of model adds its inputs in a subclass.

    Attributes:
        pairs: Questions and relevant documents; indices point into the documents that are searched.
        plain: BM25 weights of these documents.
        asked: BM25 weights of the questions: the occurrences of their terms.
        bits: Number of bits in which term weights are stored; 0: floats.
        measure: Name of the measure, as in `evaluation.measures`.
    """

    pairs: Pairs
    plain: list[TermWeights]
    asked: list[TermWeights]
    bits: int
    measure: str = LEADING

    @classmethod
    def from_setup(cls, setup: RunSetup, *, bits: int, measure: str, **inputs: Any) -> Self:
        """Weigh the held-out questions of a data set and its documents by BM25 at its usual parameters; `inputs`: the fields of a subclass."""
        common = (setup.analysis, setup.statistics, BM25())
        plain = bm25_weights(setup.texts, *common, "document")
        asked = bm25_weights(setup.dev.questions, *common, "query")
        return cls(pairs=setup.dev, plain=plain, asked=asked, bits=bits, measure=measure, **inputs)

    def figures(self, model: Any, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Compute the measure of a model in training for each question, with outputs as an index stores them; `unrounded`: then with floats."""
        raise NotImplementedError

    def int8_cost(self, folder: Path, outputs: Sequence[str], setup: RunSetup) -> dict[str, Any]:
        """Measure what int8 costs in nDCG@10, with both graphs of an exported model: ``{"questions", "documents", OUTPUT: {"fp32", "int8", "change"}}``."""
        raise NotImplementedError

    def bm25(self) -> NDArray[np.float64]:
        """Compute the measure of BM25 for each question."""
        return search_measure(self.plain, self.asked, self.gains(), self.pairs.spared, self.measure)

    def gains(self) -> list[dict[int, int]]:
        """Return document -> grade 1 for the relevant documents of each question."""
        return [dict.fromkeys(known, 1) for known in self.pairs.relevant]


def stored(documents: Sequence[TermWeights], bits: int) -> list[TermWeights]:
    """Round term weights as an index stores them: integers from 1; with 0 bits they stay unchanged."""
    if bits == 0:
        return list(documents)
    signal = Weights(w_max=scale([document.weights for document in documents]), levels=2**bits - 1)
    return [signal.rounded(document) for document in documents]


def search_measure(
    documents: Sequence[TermWeights],
    questions: Sequence[TermWeights],
    gains: Sequence[Mapping[int, int]],
    spared: Sequence[Collection[int]] = (),
    measure: str = LEADING,
) -> NDArray[np.float64]:
    """Compute the measure of each question, ranking by exact sparse dot products.

    Args:
        documents: Term weights of all documents that are searched.
        questions: Term weights of each question.
        gains: Document -> grade, for each question.
        spared: The documents that are left out of the ranking of each question; (): none.
        measure: Name of the measure.
    """
    index = SparseIndex(documents)
    skipped = spared or [()] * len(questions)
    rankings = [index.search(question, depth(measure), left_out) for question, left_out in zip(questions, skipped, strict=True)]
    return ranking_measure(rankings, gains, measure)


def depth(measure: str) -> int:
    """The number of top documents that a measure uses: 10 for ``nDCG@10``."""
    return int(measure.rpartition("@")[2])


def rankings(
    questions: NDArray[np.float32],
    documents: NDArray[np.float32],
    length: int,
    spared: Sequence[Collection[int]] = (),
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rank documents by inner products of vectors: the `length` best for each question and their scores, ties by index.

    Args:
        questions: Unit vectors, float32 ``(Q, d)``.
        documents: Likewise, ``(D, d)``.
        length: Documents of each ranking.
        spared: For each question documents that are left out of its ranking; (): none.
    """
    size = max(1, _BLOCK // max(1, len(documents)))
    for first in range(0, len(questions), size):
        scores = questions[first : first + size] @ documents.T
        for row, own in enumerate(scores, start=first):
            if spared:
                own[list(spared[row])] = -np.inf
        for own, columns in zip(scores, best(scores, length), strict=True):
            kept = columns[own[columns] > -np.inf]
            yield kept, own[kept]


def best(scores: NDArray[np.floating], depth: int) -> NDArray[np.int64]:
    """Columns of the largest scores of each row, best first, ties by column: ``(rows, depth)``, or all columns where there are fewer."""
    if depth >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    cut = -np.partition(-scores, depth - 1, axis=1)[:, depth - 1]
    result = np.zeros((len(scores), depth), dtype=np.int64)
    for row, (values, least) in enumerate(zip(scores, cut, strict=True)):
        at_least = np.flatnonzero(~(values < least))  # also NaN, of a model that has diverged
        result[row] = at_least[np.argsort(-values[at_least], kind="stable")][:depth]
    return result


def vectors_of(encoded: Sequence[Encoding]) -> NDArray[np.float32]:
    """Stack the vectors of encoded texts: ``(texts, d)``."""
    return np.stack([each.vector for each in encoded if each.vector is not None])


def ranking_measure(
    rankings: Sequence[tuple[NDArray[np.int64], NDArray[np.floating]]],
    gains: Sequence[Mapping[int, int]],
    measure: str = LEADING,
) -> NDArray[np.float64]:
    """Compute the measure of each question from rankings.

    Args:
        rankings: For each question its documents, best first, and their scores.
        gains: Document -> grade, for each question.
        measure: Name of the measure.

    Returns:
        float64 ``(questions,)``.
    """
    run: dict[str, dict[str, float]] = {}
    for number, (best, scores) in enumerate(rankings):
        run[str(number)] = {str(place): score for place, score in zip(best.tolist(), scores.tolist(), strict=True)}
    qrels = {str(number): {str(place): grade for place, grade in known.items()} for number, known in enumerate(gains)}
    values: NDArray[np.float64] = per_query(Run("dev", run), qrels, list(run), measures=(measure,))[measure]
    return values
