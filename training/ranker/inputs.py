"""What ranker training reads: texts, candidate lists with the features of the first stage, and blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.training.data.sampler import TrainingInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader

#: Fills up a block or list that is shorter than the others.
NOTHING = -1


@dataclass(frozen=True)
class CandidateLists:
    """The documents of each question that the first stage found, and what it says of them.

    Attributes:
        documents: int64 ``(Q, N)``, best first; `NOTHING` at the end of a shorter list.
        features: float32 ``(Q, N, F)``: the features that the first stage names, its score first.
    """

    documents: NDArray[np.int64]
    features: NDArray[np.float32]


@dataclass(frozen=True)
class RankerInputs(TrainingInputs):
    """What blocks are drawn from.

    Attributes:
        negatives: For each question the columns of `lists` that hold wrong documents, best first.
        lists: Candidates of each question; relevant documents that the first stage did not find stand in columns behind it.
        questions: Texts.
        documents: Texts.
        reader: Turns pairs of texts into token ids.
    """

    negatives: list[NDArray[np.int64]]
    lists: CandidateLists
    questions: Sequence[str]
    documents: Sequence[str]
    reader: PairReader


@dataclass(frozen=True)
class Blocks:
    """The blocks of one step: questions, each with one right document and wrong ones.

    Attributes:
        questions: int64 ``(B,)``.
        documents: int64 ``(B, n)``: the right document first; `NOTHING` where there are too few wrong ones.
        features: float32 ``(B, n, F)``, of the first stage.
        keys: float32 ``(B, n)``, uniform random numbers for methods that select at random.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    features: NDArray[np.float32]
    keys: NDArray[np.float32]
