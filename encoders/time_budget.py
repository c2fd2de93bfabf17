"""The time budget of a cross-encoder: as many documents are scored as the time permits."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import RankerModel

#: Documents that are scored between two looks at the clock on a GPU; on a CPU as many as run at a time.
_GPU_BLOCK = 16
#: Characters of a word-piece, as an upper bound, and those that would take as long as what a pair costs beside its texts.
_CHARACTERS, _BESIDE = 6, 100


def scores(model: RankerModel, query: str, documents: Sequence[str], seconds: float, windows: int) -> NDArray[np.float32]:
    """The scores of the first documents, as many as the time permits. Opening the model does not count.

    A few documents run at a time. The next ones are started only if they fit into the time that is left, as long as they are and at
    the slowest rate so far. So only the very first ones, or one that takes longer for its length than those before it, can take longer
    than `seconds`.

    Args:
        model: The cross-encoder.
        query: The query.
        documents: The documents, the most important ones first.
        seconds: The time; 0 scores none.
        windows: Most windows of a document that does not fit beside the query.
    """
    size = _GPU_BLOCK if model.graph.on_gpu else model.graph.threads
    result = np.zeros(0, dtype=np.float32)
    most = windows * model.manifest.max_length * _CHARACTERS
    began, slowest = perf_counter(), 0.0  # seconds a character
    while len(result) < len(documents):
        block = documents[len(result) : len(result) + size]
        length = _BESIDE + len(query) + max(min(len(document), most) for document in block)
        started = perf_counter()
        if started - began + slowest * length >= seconds:
            break
        result = np.concatenate([result, model.score(query, block, windows=windows)])
        slowest = max(slowest, (perf_counter() - started) / length)
    return result
