"""What ranker training reads: texts, candidate lists with the features of the first stage, and the blocks of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.training.data.sampler import BatchSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.training.data.pairs import Pairs

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
class RankerInputs:
    """What blocks are drawn from; fulfils `data.sampler.TrainingInputs`.

    Attributes:
        share: How often batches come from this data set, relative to the others.
        pairs: Questions and their relevant documents.
        negatives: For each question the columns of `lists` that hold wrong documents, best first.
        lists: Candidates of each question; relevant documents that the first stage did not find stand in columns behind it.
        questions: Texts.
        documents: Texts.
        reader: Turns pairs of texts into token ids.
    """

    share: float
    pairs: Pairs
    negatives: list[NDArray[np.int64]]
    lists: CandidateLists
    questions: Sequence[str]
    documents: Sequence[str]
    reader: PairReader


@dataclass(frozen=True)
class RankerBatch:
    """The blocks of one step: a question with one right document and wrong ones.

    Attributes:
        collection: Index of the data set that they are of.
        questions: int64 ``(B,)``.
        documents: int64 ``(B, n)``: the right document first; `NOTHING` where there are too few wrong ones.
        features: float32 ``(B, n, F)``, of the first stage.
        keys: float32 ``(B, n)``, uniform random numbers for methods that select at random.
    """

    collection: int
    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    features: NDArray[np.float32]
    keys: NDArray[np.float32]


class RankerBatchSampler(BatchSampler):
    """Draws blocks. The setting `variant` says where wrong documents come from; the seed and the number decide which."""

    def __init__(self, inputs: Sequence[RankerInputs], settings: Any) -> None:
        """Prepare to draw; arguments as in `BatchSampler`."""
        super().__init__(inputs, settings)
        self._lists, self._size = list(inputs), settings.block()

    def draw(self, number: int) -> Any:
        """Draw one batch by its number in the run."""
        generator, collection = self.begin(number)
        inputs, questions = self._lists[collection], self.questions(number, generator, collection)
        blocks = [self._block(inputs, question, generator) for question in questions.tolist()]
        documents, features = (np.stack(part) for part in zip(*blocks, strict=True))
        keys = generator.random(documents.shape, dtype=np.float32)
        return RankerBatch(collection, questions, documents, features, keys)

    def _block(
        self, inputs: RankerInputs, question: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """One right document and wrong ones: int64 ``(n,)`` and float32 ``(n, F)``."""
        lists, source = inputs.lists, self._settings.variant
        right = int(generator.choice(sorted(inputs.pairs.relevant[question])))
        column = int(np.flatnonzero(lists.documents[question] == right)[0])
        documents = np.full(self._size, NOTHING, dtype=np.int64)
        features = np.zeros((self._size, lists.features.shape[2]), dtype=np.float32)
        documents[0], features[0] = right, lists.features[question, column]
        if source == "random":  # any documents of the collection; the first stage knows nothing of most of them
            drawn = generator.integers(len(inputs.documents), size=2 * self._size)
            known = inputs.pairs.known[question]
            wrong = np.array([each for each in dict.fromkeys(drawn.tolist()) if each not in known], dtype=np.int64)
            if len(wrong) < self._size - 1:  # in a small collection many were drawn twice
                others = np.setdiff1d(np.arange(len(inputs.documents)), [*wrong, *known])
                wrong = np.concatenate([wrong, generator.permutation(others)])
            wrong = wrong[: self._size - 1]
            documents[1 : 1 + len(wrong)] = wrong
            return documents, features
        pool = inputs.negatives[question]
        columns = pool if source == "static" else generator.permutation(pool)
        columns = columns[: self._size - 1]
        documents[1 : 1 + len(columns)] = lists.documents[question, columns]
        features[1 : 1 + len(columns)] = lists.features[question, columns]
        return documents, features
