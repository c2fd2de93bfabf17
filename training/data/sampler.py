"""Batches: which questions and documents a step of training looks at, drawn in the data loader.

A batch depends on the seed and its number alone, so that a run that was stopped and resumed sees the same batches as one that was not. All
texts of a batch come from one data set: telling medicine from history would teach nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.training.data.pairs import Pairs


class TrainingInputs(Protocol):
    """What batches are drawn from; a family's inputs of one data set have these attributes and more of their own."""

    @property
    def share(self) -> float:
        """How often batches come from this data set, relative to the others."""
        ...

    @property
    def pairs(self) -> Pairs:
        """Questions and their relevant documents."""
        ...

    @property
    def negatives(self) -> Sequence[NDArray[np.int64]]:
        """For each question the indices of its hard negatives; may be empty."""
        ...


@dataclass(frozen=True)
class Batch:
    """The texts that one step looks at.

    Attributes:
        questions: int64 ``(Q,)``.
        documents: int64 ``(D,)``: document q is relevant to question q; those from Q on are hard negatives.
        owner: int64 ``(D,)``: the question that a document was drawn for.
        collection: Index of the data set that the texts are of.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    owner: NDArray[np.int64]
    collection: int = 0

    def foreign(self) -> NDArray[np.bool_]:
        """Which documents were drawn for another question than that of the row: ``(Q, D)``."""
        own: NDArray[np.bool_] = self.owner[None, :] != np.arange(len(self.questions))[:, None]
        return own


class BatchSampler:
    """The batches of a run, as a data set that torch's data loader reads in order."""

    def __init__(self, inputs: Sequence[TrainingInputs], settings: Any) -> None:
        """Prepare to draw.

        Args:
            inputs: One or more data sets.
            settings: Of the method: seed, batch, steps and, where the method draws hard negatives, drawn.
        """
        self._inputs, self._settings = list(inputs), settings
        shares = np.array([each.share for each in self._inputs])
        self._shares = shares / shares.sum()

    def __len__(self) -> int:
        return int(self._settings.steps)

    def __getitem__(self, number: int) -> Batch:
        return self.draw(number)

    def draw(self, number: int) -> Batch:
        """Draw one batch by its number in the run."""
        generator = np.random.default_rng((self._settings.seed, number))
        collection = int(generator.choice(len(self._inputs), p=self._shares))
        pairs, negatives = self._inputs[collection].pairs, self._inputs[collection].negatives
        size = min(self._settings.batch, len(pairs) if pairs.shares is None else int((pairs.shares > 0).sum()))
        questions = generator.choice(len(pairs), size=size, replace=False, p=pairs.shares)
        relevant = [sorted(pairs.relevant[question]) for question in questions.tolist()]
        documents = [answers[int(generator.integers(len(answers)))] for answers in relevant]
        owner = list(range(size))
        for row, question in enumerate(questions.tolist()):
            pool = negatives[question] if len(negatives) else ()
            for place in generator.permutation(len(pool))[: self._settings.drawn]:
                documents.append(int(pool[place]))
                owner.append(row)
        return Batch(questions, np.array(documents, dtype=np.int64), np.array(owner, dtype=np.int64), collection)
