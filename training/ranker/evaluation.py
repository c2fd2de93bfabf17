"""The development measure of a ranker: the candidates of held-out questions, reranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave.training.dev_measure import DevelopmentSet, ranking_measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.training.ranker.inputs import CandidateLists
    from termweave.training.ranker.model import AnchoredRanker

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

    def figures(self, model: AnchoredRanker) -> NDArray[np.float64]:
        """The measure of each question, reranked by a model in training."""
        return self.reranked(lambda question, texts, features: model.rank(self.reader, question, texts, features))

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
