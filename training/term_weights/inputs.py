"""What term weights learn from: a data set as word-pieces, with anchors, hidden states and hard negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from termweave.encoders.term_weighting import Form, anchored
from termweave.training.data.sampler import TrainingInputs
from termweave.training.term_weights.batch import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.analysis.word_pieces import PieceTokenizer
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.term_weighting import BM25, Kind
    from termweave.statistics import CorpusStatistics
    from termweave.training.data.teacher_scores import Distilled
    from termweave.training.term_weights.hidden_states import States


@dataclass(frozen=True)
class TermWeightInputs(TrainingInputs):
    """One data set that term weights learn from; the pairs are indices into `documents`.

    Attributes:
        documents: The analysed documents.
        questions: The analysed questions.
        document_states: Hidden states of the documents; None if the backbone is trained, because they change.
        question_states: Hidden states of the questions; None if the backbone is trained.
        negatives: For each question the indices of its hard negatives; may be empty.
        statistics: Statistics of the whole corpus.
        distilled: Teacher scores and the weight of their loss; None: no teacher.
    """

    documents: Prepared
    questions: Prepared
    document_states: States | None
    question_states: States | None
    negatives: list[NDArray[np.int64]]
    statistics: CorpusStatistics
    distilled: Distilled | None = None

    def prepared(self, kind: Kind) -> Prepared:
        """Return the analysed questions or documents."""
        return self.questions if kind == "query" else self.documents

    def states(self, kind: Kind) -> States | None:
        """Return the hidden states of the questions or of the documents."""
        return self.question_states if kind == "query" else self.document_states

    @cached_property
    def answered(self) -> dict[int, list[int]]:
        """Relevant document -> the questions that it answers."""
        answered: dict[int, list[int]] = {}
        for question, relevant in enumerate(self.pairs.relevant):
            for document in relevant:
                answered.setdefault(document, []).append(question)
        return answered


def prepare(
    texts: Sequence[str],
    analysis: Analysis,
    tokenizer: PieceTokenizer,
    statistics: CorpusStatistics,
    bm25: BM25,
    kind: Kind,
    max_length: int,
    form: Form | None = None,
    prompt: str = "",
) -> Prepared:
    """Analyse texts and cut them into word-pieces; `Pieces.words` of the result are indices of the analysis's words.

    The pieces of a prompt before the texts belong to no word.
    """
    words = analysis.words(texts)
    cut = tokenizer.encode([each.clean for each in words], max_length, ends=[each.clean_ends for each in words], prompt=prompt)
    pieces = [replace(piece, words=each.word_of_piece(piece)) for piece, each in zip(cut, words, strict=True)]
    return Prepared([anchored(each, statistics, bm25, kind, form or Form()) for each in words], pieces)
