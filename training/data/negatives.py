"""Hard negatives: the wrong documents that BM25 ranks best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.training.data.bm25_index import SparseIndex


def mine(
    index: SparseIndex, questions: Sequence[TermWeights], known: Sequence[frozenset[int]], depth: int
) -> list[NDArray[np.int64]]:
    """Find hard negatives: for each question BM25's best `depth` documents without those in `known`, which may answer it."""
    best = [index.search(question, depth)[0].tolist() for question in questions]
    return [
        np.array([document for document in own if document not in spared], dtype=np.int64)
        for own, spared in zip(best, known, strict=True)
    ]
