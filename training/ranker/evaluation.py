"""The development measure of a ranker: the candidates of held-out questions, reranked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders import Ranker
from termweave.evaluation.measures import LEADING
from termweave.training.dev_measure import DevelopmentSet, ranking_measure
from termweave.training.model_folder.quantisation_check import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.encoders.onnx.runtime import Precision
    from termweave.training.ranker.inputs import CandidateLists
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup

    #: (question, texts of documents, features of the first stage) -> scores.
    Scorer = Callable[[str, Sequence[str], NDArray[np.float32]], NDArray[np.floating]]


@dataclass(frozen=True, kw_only=True)
class RankerDevelopment(DevelopmentSet):
    """Held-out questions with the documents that the first stage found.

    Attributes:
        lists: Candidates of each question.
        documents: Texts that the indices in `lists` point to.
        reader: Turns pairs of texts into token ids.
    """

    lists: CandidateLists
    documents: Sequence[str]
    reader: PairReader

    def figures(self, model: AnchoredRanker, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Compute the measure of each question, reranked by a model in training; `unrounded` twice: an index stores nothing of a ranker."""
        figures = self.reranked(lambda question, texts, features: model.rank(self.reader, question, texts, features))
        return [figures, figures] if unrounded else [figures]

    def first_stage(self) -> NDArray[np.float64]:
        """The measure of each question in the order of the first stage."""
        return self.reranked(lambda question, texts, features: -np.arange(len(texts), dtype=np.float64))  # noqa: ARG005

    def reranked(self, score: Scorer, questions: int | None = None) -> NDArray[np.float64]:
        """The measure of the first `questions` questions (None: all), reranked by a scorer; ties keep the first stage's order."""
        rankings = []
        for row, question in enumerate(self.pairs.questions[:questions]):
            own = self.lists.documents[row]
            columns = np.flatnonzero(own >= 0)
            texts = [self.documents[document] for document in own[columns].tolist()]
            scores = score(question, texts, self.lists.features[row, columns]) if texts else np.zeros(0)
            order = np.argsort(-scores, kind="stable")
            rankings.append((own[columns][order], -np.arange(len(order), dtype=np.float64)))
        return ranking_measure(rankings, self.gains()[:questions], self.measure)

    def int8_cost(self, folder: Path, outputs: Sequence[str], setup: RunSetup) -> dict[str, Any]:
        """Measure nDCG@10 of both graphs on the first held-out questions.

        Returns:
            ``{"questions", "documents", "scores": {"fp32", "int8", "change"}}``; the documents are the candidates that are reranked.
        """
        del outputs, setup
        count = min(QUESTIONS, len(self.pairs))
        figures: dict[str, float] = {}
        precisions: tuple[Precision, ...] = ("fp32", "int8")
        for precision in precisions:
            ranker = Ranker.load(folder, precision=precision)
            scores = partial(_anchored, ranker, list(ranker.anchor.values()))
            figures[precision] = float(replace(self, measure=LEADING).reranked(scores, count).mean())
        reranked = len({document for row in self.lists.documents[:count].tolist() for document in row if document >= 0})
        change = {**figures, "change": figures["int8"] - figures["fp32"]}
        return {"questions": count, "documents": reranked, "scores": change}


def _anchored(
    ranker: Ranker, weights: Sequence[float], question: str, texts: Sequence[str], features: NDArray[np.float32]
) -> NDArray[np.floating]:
    """The logits with the anchor's share."""
    logits = ranker.score(question, texts)
    return logits + features @ np.array(weights, dtype=np.float32) if weights else logits
