"""The development measure: rank held-out questions by exact search in memory, without a server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import load
from termweave.encoders.model_lookup import DEFAULT, resolve
from termweave.evaluation.measures import LEADING, per_query, randomisation_test
from termweave.records import Encoding, Run, TermWeights
from termweave.signals.weights import Weights, scale
from termweave.training.data.bm25_index import SparseIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders import TextEncoder
    from termweave.encoders.onnx.runtime import Precision
    from termweave.statistics import CorpusStatistics
    from termweave.training.data.pairs import Pairs
    from termweave.training.setup import RunSetup

    #: Documents, best first, and their scores.
    Ranking = tuple[NDArray[np.int64], NDArray[np.floating[Any]]]

#: A difference whose p-value is not below it counts as chance.
CHANCE = 0.05
#: Numbers in a block of scores, 64 MB of float32.
_BLOCK = 16_000_000


def stored(documents: Sequence[TermWeights]) -> list[TermWeights]:
    """Round term weights as an index stores them: integers from 1, of 8 bits."""
    signal = Weights(w_max=scale([document.weights for document in documents]))
    return [signal.rounded(document) for document in documents]


def encoded_rankings(
    encoder: TextEncoder,
    outputs: Sequence[str],
    documents: Sequence[str],
    questions: Sequence[str],
    statistics: CorpusStatistics | None,
    length: int,
    spared: Sequence[Collection[int]] = (),
) -> tuple[list[Encoding], dict[str, list[Ranking]]]:
    """Encode texts, and rank the documents by each output: by term weights, rounded as an index stores them, and by vectors.

    Args:
        encoder: Encodes the texts.
        outputs: "weights", "dense" or both.
        documents: Texts of the documents.
        questions: Texts of the questions.
        statistics: Statistics of the corpus; None: only vectors are ranked.
        length: Number of documents in each ranking.
        spared: As in `rankings`.

    Returns:
        The encoded documents; output -> the ranking of each question.
    """
    encoded_documents = encoder.encode(documents, kind="document", statistics=statistics)
    encoded_questions = encoder.encode(questions, kind="query", statistics=statistics)
    ranked: dict[str, list[Ranking]] = {}
    if "dense" in outputs:
        ranked["dense"] = list(rankings(vectors_of(encoded_questions), vectors_of(encoded_documents), length, spared))
    if "weights" in outputs:
        sides = (encoded_documents, encoded_questions)
        impacts, factors = ([each.weights for each in side if each.weights is not None] for side in sides)
        ranked["weights"] = [*SparseIndex(stored(impacts)).rankings(factors, length, spared)]
    return encoded_documents, ranked


def depth(measure: str) -> int:
    """Return the number of top documents that a measure uses: 10 for ``nDCG@10``."""
    return int(measure.rpartition("@")[2])


def rankings(
    questions: NDArray[np.float32], documents: NDArray[np.float32], length: int, spared: Sequence[Collection[int]] = ()
) -> Iterator[Ranking]:
    """Rank documents by inner products of vectors: the `length` best for each question and their scores, ties by index.

    Args:
        questions: Unit vectors, float32 ``(Q, d)``.
        documents: Likewise, ``(D, d)``.
        length: Number of documents in each ranking.
        spared: For each question documents that are left out of its ranking; (): none.
    """
    size = max(1, _BLOCK // max(1, len(documents)))
    for first in range(0, len(questions), size):
        scores = questions[first : first + size] @ documents.T
        for row, row_scores in enumerate(scores, start=first):
            if spared:
                row_scores[list(spared[row])] = -np.inf
        for row_scores, columns in zip(scores, best(scores, length), strict=True):
            ranked = columns[row_scores[columns] > -np.inf]
            yield ranked, row_scores[ranked]


def best(scores: NDArray[np.floating], depth: int) -> NDArray[np.int64]:
    """Return the columns of the largest scores of each row, best first, ties by column: ``(rows, depth)``, or all columns where there are fewer."""
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


def ranking_measure(ranked: Sequence[Ranking], gains: Sequence[Mapping[int, int]], measure: str = LEADING) -> NDArray[np.float64]:
    """Compute the measure of each question from rankings.

    Args:
        ranked: For each question its documents, best first, and their scores.
        gains: Document -> grade, for each question.
        measure: Name of the measure.

    Returns:
        float64 ``(questions,)``.
    """
    run: dict[str, dict[str, float]] = {}
    for number, (best, scores) in enumerate(ranked):
        run[str(number)] = {str(place): score for place, score in zip(best.tolist(), scores.tolist(), strict=True)}
    qrels = {str(number): {str(place): grade for place, grade in graded.items()} for number, graded in enumerate(gains)}
    values: NDArray[np.float64] = per_query(Run("dev", run), qrels, list(run), measures=(measure,))[measure]
    return values


def compared(
    measure: str,
    history: Mapping[str, Any],
    dev: NDArray[np.float64],
    bm25: NDArray[np.float64],
    start: NDArray[np.float64],
    unrounded: NDArray[np.float64],
) -> dict[str, Any]:
    """Describe how a trained model ranks the development questions, beside BM25 and the model at step 0.

    Args:
        measure: Name of the measure.
        history: The figures of the model's evaluations in training.
        dev: The measure of each question by the model, as an index stores its outputs.
        bm25: The measure of each question by BM25.
        start: The measure of each question by the model at step 0.
        unrounded: The measure of each question by the model with unrounded outputs.
    """
    p = float(randomisation_test(dev, bm25))
    means = {"bm25": bm25, "start": start, "dev": dev, "dev_float": unrounded}
    return {
        "history": dict(history),
        "measure": measure,
        **{name: float(values.mean()) for name, values in means.items()},
        "start_p": float(randomisation_test(dev, start)),
        "p": p,
        "default": not (dev.mean() < bm25.mean() and p < CHANCE),
    }


#: Number of questions that measure the exported graphs; documents per question in their pool, and the most of these that may be relevant.
QUESTIONS, _EACH, _RELEVANT = 50, 6, 3


@dataclass(frozen=True)
class DevelopmentSet:
    """Held-out questions of one data set. Each kind of model adds its inputs in a subclass.

    Attributes:
        setup: The data set.
        measure: Name of the measure, as in `evaluation.measures`.
    """

    setup: RunSetup
    measure: str = LEADING

    @property
    def pairs(self) -> Pairs:
        """Return questions and relevant documents; indices point into the documents that are searched."""
        return self.setup.dev

    def figures(self, model: Any, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Measure a model in training on each question, with outputs as an index stores them; `unrounded`: a second time with unrounded outputs."""
        raise NotImplementedError

    def bm25(self) -> NDArray[np.float64]:
        """Compute the measure of BM25 for each question."""
        questions = self.setup.bm25_weights(self.pairs.questions, "query")
        ranked = self.setup.bm25_index.rankings(questions, depth(self.measure), self.pairs.spared)
        return ranking_measure(ranked, self.gains(), self.measure)

    def gains(self) -> list[dict[int, int]]:
        """Return document -> grade 1 for the relevant documents of each question."""
        return [dict.fromkeys(relevant, 1) for relevant in self.pairs.relevant]

    def int8_cost(self, folder: Path, outputs: Sequence[str]) -> dict[str, Any]:
        """Measure nDCG@10 of both graphs of an exported model, which takes seconds: at most 50 questions in at most 300 documents.

        Args:
            folder: Folder of the exported model.
            outputs: Outputs of the model: "weights", "dense" or both.

        Returns:
            ``{"questions", "documents", "weights": {"fp32", "int8", "change"}}``, and "dense" likewise; impacts are rounded as stored.
            "shipped" is the model that comes with termweave, and "shipped_p" the p-value of the int8 graph against it; a shipped model that cuts words
            into other terms is left out.
        """
        numbers = range(0, len(self.pairs), -(-len(self.pairs) // QUESTIONS))
        pool, statistics = self._pool(numbers), self.setup.statistics
        texts = [self.setup.texts[place] for place in pool]
        pairs = self.pairs.part(numbers).within({place: index for index, place in enumerate(pool)})
        gains = [dict.fromkeys(each, 1) for each in pairs.relevant]
        measured: dict[str, dict[str, NDArray[np.float64]]] = {output: {} for output in outputs}
        models: dict[str, tuple[Path, Precision | None]] = {"fp32": (folder, "fp32"), "int8": (folder, "int8")}
        models["shipped"] = (resolve(DEFAULT), None)
        for name, (model, precision) in models.items():
            encoder = load(*(model if output in outputs else "" for output in ("weights", "dense")), precision=precision)
            if encoder.analysis is not None and encoder.analysis != statistics.analysis:
                continue  # the shipped model is not for this language
            _, ranked = encoded_rankings(encoder, outputs, texts, pairs.questions, statistics, depth(LEADING), pairs.spared)
            for output in outputs:
                measured[output][name] = ranking_measure(ranked[output], gains)
        costs = {output: _compared(each) for output, each in measured.items()}
        return {"questions": len(numbers), "documents": len(pool), **costs}

    def _pool(self, questions: Sequence[int]) -> list[int]:
        """Choose some relevant documents and BM25's best documents for every question."""
        pool = set[int]()
        pairs = self.pairs.part(questions)
        ranked = self.setup.bm25_index.rankings(self.setup.bm25_weights(pairs.questions, "query"), _EACH, pairs.spared)
        for relevant, (best, _) in zip(pairs.relevant, ranked, strict=True):
            pool.update(list(dict.fromkeys([*sorted(relevant)[:_RELEVANT], *best.tolist()]))[:_EACH])
        return sorted(pool)


def _compared(measured: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the mean by each model, the change by int8, and the p-value of the int8 graph against the shipped model where that was measured."""
    figures = {name: float(values.mean()) for name, values in measured.items()}
    if "shipped" in measured:
        figures["shipped_p"] = float(randomisation_test(measured["int8"], measured["shipped"]))
    return {**figures, "change": figures["int8"] - figures["fp32"]}
