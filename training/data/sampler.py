"""Batches: which questions and documents a step of training looks at, drawn in the data loader.

A batch depends on the seed and its number alone, so that a run that was stopped and resumed sees the same batches as one that was not. All
texts of a batch come from one data set: telling medicine from history would teach nothing.

With `epochs` the questions come in passes: each pass has every question of the data set once, in an order of its own, and its last batch may
be smaller. With `steps` each batch is drawn anew from all questions, and so is one of a click log, whose questions are drawn by their shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.training.data.pairs import Pairs


#: Tells the seed of a pass's order from that of a batch.
_PASS = 1


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
            settings: Of the method: seed, batch, steps, epochs and, where the method draws hard negatives, drawn.
        """
        self._inputs, self._settings = list(inputs), settings
        shares = np.array([each.share for each in self._inputs])
        self._shares = shares / shares.sum()

    def __len__(self) -> int:
        return int(self._settings.steps)

    def __getitem__(self, number: int) -> Batch:
        return self.draw(number)

    def begin(self, number: int) -> tuple[np.random.Generator, int]:
        """Return the source of randomness of a batch, and the data set that it is drawn from."""
        generator = np.random.default_rng((self._settings.seed, number))
        return generator, int(generator.choice(len(self._inputs), p=self._shares))

    def questions(self, number: int, generator: np.random.Generator, collection: int) -> NDArray[np.int64]:
        """Draw the distinct training questions of a batch: int64 ``(batch or fewer,)``."""
        pairs, size = self._inputs[collection].pairs, self._settings.batch
        if self._settings.epochs < 0 or pairs.shares is not None:
            able = len(pairs) if pairs.shares is None else int((pairs.shares > 0).sum())
            drawn: NDArray[np.int64] = generator.choice(len(pairs), size=min(size, able), replace=False, p=pairs.shares)
            return drawn
        before = number if len(self._inputs) == 1 else self._collections[:number].count(collection)
        done, part = divmod(before, math.ceil(len(pairs) / size))
        order = np.random.default_rng((self._settings.seed, collection, done, _PASS)).permutation(len(pairs))
        return order[part * size : (part + 1) * size]

    @cached_property
    def _collections(self) -> list[int]:
        """The data set of each batch of the run."""
        return [self.begin(number)[1] for number in range(len(self))]

    def draw(self, number: int) -> Batch:
        """Draw one batch by its number in the run."""
        generator, collection = self.begin(number)
        pairs, negatives = self._inputs[collection].pairs, self._inputs[collection].negatives
        questions = self.questions(number, generator, collection)
        size = len(questions)
        relevant = [sorted(pairs.relevant[question]) for question in questions.tolist()]
        documents = [answers[int(generator.integers(len(answers)))] for answers in relevant]
        owner = list(range(size))
        for row, question in enumerate(questions.tolist()):
            pool = negatives[question] if len(negatives) else ()
            for place in generator.permutation(len(pool))[: self._settings.drawn]:
                documents.append(int(pool[place]))
                owner.append(row)
        return Batch(questions, np.array(documents, dtype=np.int64), np.array(owner, dtype=np.int64), collection)
