"""Hard negatives: the wrong documents that BM25 ranks best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.training.data.bm25_index import SparseIndex, bm25_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.term_weighting import BM25
    from termweave.statistics import CorpusStatistics


def mine(
    questions: Sequence[str],
    documents: Sequence[str],
    known: Sequence[frozenset[int]],
    analysis: Analysis,
    statistics: CorpusStatistics,
    bm25: BM25,
    depth: int,
) -> list[NDArray[np.int64]]:
    """Find hard negatives: for each question BM25's best `depth` documents without those in `known`, which may answer it."""
    index = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    mined = []
    for query, spared in zip(bm25_weights(questions, analysis, statistics, bm25, "query"), known, strict=True):
        best, _ = index.search(query, depth)
        mined.append(np.array([document for document in best.tolist() if document not in spared], dtype=np.int64))
    return mined
