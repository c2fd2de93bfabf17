"""What a lesson draws its batches from: a collection, cut into pieces, with its anchors, states and hard negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.form import Form
from termweave.encoders.weighting import anchored
from termweave.training.sides import Prepared
from termweave.training.sparse import SparseIndex, bm25_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis import Analysis
    from termweave.encoders.anchor import BM25
    from termweave.encoders.pieces import PieceTokenizer
    from termweave.encoders.weighting import Kind
    from termweave.statistics import CorpusStatistics
    from termweave.training.pairs import Pairs
    from termweave.training.states import States
    from termweave.training.teachers import Distilled


@dataclass(frozen=True)
class Material:
    """One collection as a lesson uses it.

    Attributes:
        share: How often batches come from here, relative to the other collections of the lesson.
        pairs: Questions and relevant documents, as indices into `documents`.
        documents: Prepared documents.
        questions: Prepared questions.
        document_states: Hidden states of `documents`; None where layers are trained and states change.
        question_states: Hidden states of `questions`; likewise.
        negatives: For each question the indices of its hard negatives; may be empty.
        statistics: Of the whole collection.
        distilled: A scorer of pairs, and how much it says; None: nothing.
    """

    share: float
    pairs: Pairs
    documents: Prepared
    questions: Prepared
    document_states: States | None
    question_states: States | None
    negatives: list[NDArray[np.int64]]
    statistics: CorpusStatistics
    distilled: Distilled | None = None

    def prepared(self, kind: Kind) -> Prepared:
        """One side."""
        return self.questions if kind == "query" else self.documents

    def states(self, kind: Kind) -> States | None:
        """Its hidden states."""
        return self.question_states if kind == "query" else self.document_states


def prepare(
    texts: Sequence[str],
    analysis: Analysis,
    tokenizer: PieceTokenizer,
    statistics: CorpusStatistics,
    bm25: BM25,
    kind: Kind,
    max_length: int,
    form: Form | None = None,
) -> Prepared:
    """Analyse and cut texts; `Pieces.words` of the result are words of the analysis."""
    words = analysis.words(texts)
    cut = tokenizer.encode([each.clean for each in words], max_length, ends=[each.clean_ends for each in words])
    pieces = [replace(piece, words=each.of(piece)) for piece, each in zip(cut, words, strict=True)]
    return Prepared([anchored(each, statistics, bm25, kind, form or Form()) for each in words], pieces)


def mine(
    questions: Sequence[str],
    documents: Sequence[str],
    known: Sequence[frozenset[int]],
    analysis: Analysis,
    statistics: CorpusStatistics,
    bm25: BM25,
    depth: int,
) -> list[NDArray[np.int64]]:
    """Hard negatives: for each question BM25's best `depth` documents without those `known` to be no wrong answers."""
    index = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    found = []
    for query, spared in zip(bm25_weights(questions, analysis, statistics, bm25, "query"), known, strict=True):
        best, _ = index.search(query, depth)
        found.append(np.array([document for document in best.tolist() if document not in spared], dtype=np.int64))
    return found
