"""Batches: which questions and documents a step of training looks at, drawn in the data loader.

A batch depends on the seed and its number alone, so that a run that was stopped and resumed sees the same batches as one that was not. All
texts of a batch come from one data set: telling medicine from history would teach nothing.

With `epochs` the questions come in passes: each pass has every question of the data set once, in an order of its own, and its last batch may
be smaller. With `steps` each batch is drawn anew from all questions, and so is one of a click log, whose questions are drawn by their shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.training.data.pairs import Pairs
    from termweave.training.methods.base import Method


#: Tells the seed of a pass's order from that of a batch.
_PASS = 1


@dataclass(frozen=True)
class TrainingInputs:
    """One data set that batches are drawn from; each kind of model adds fields in a subclass.

    Attributes:
        share: How often batches come from this data set, relative to the others.
        pairs: Questions and their relevant documents.
    """

    share: float
    pairs: Pairs


@dataclass(frozen=True)
class Batch:
    """The data of one training step.

    Attributes:
        inputs: Training inputs of the data set that the batch is drawn from (`Method.inputs`).
        drawn: The texts that the method drew (`Method.draw`).
    """

    inputs: Any
    drawn: Any


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions with a relevant document and hard negatives.

    Attributes:
        questions: int64 ``(Q,)``.
        documents: int64 ``(D,)``: document q is relevant to question q; those from Q on are hard negatives.
        owner: int64 ``(D,)``: the question that a document was drawn for.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    owner: NDArray[np.int64]

    @classmethod
    def draw(
        cls,
        questions: NDArray[np.int64],
        relevant: Sequence[frozenset[int]],
        negatives: Sequence[NDArray[np.int64]],
        most: int,
        generator: np.random.Generator,
    ) -> AnsweredQuestions:
        """Draw one of the relevant documents of each question, and then at most `most` of its hard negatives."""
        answers = [sorted(relevant[question]) for question in questions.tolist()]
        documents = [of_question[int(generator.integers(len(of_question)))] for of_question in answers]
        owner = list(range(len(questions)))
        for row, question in enumerate(questions.tolist()):
            pool = negatives[question] if len(negatives) else ()
            for place in generator.permutation(len(pool))[:most]:
                documents.append(int(pool[place]))
                owner.append(row)
        return cls(questions, np.array(documents, dtype=np.int64), np.array(owner, dtype=np.int64))

    def foreign(self) -> NDArray[np.bool_]:
        """Return a mask, bool ``(Q, D)``: True where a document was drawn for another question than the question of the row."""
        foreign: NDArray[np.bool_] = self.owner[None, :] != np.arange(len(self.questions))[:, None]
        return foreign


class BatchSampler:
    """The batches of a run, as a data set that torch's data loader reads in order."""

    def __init__(self, method: Method, inputs: Sequence[TrainingInputs], settings: Any) -> None:
        """Prepare to draw the batches of a run.

        Args:
            method: The training method, which draws the texts of a batch.
            inputs: Training inputs of one or more data sets.
            settings: Settings of the fit: seed, batch, steps, epochs, and those that the method reads.
        """
        self._method, self._inputs, self._settings = method, list(inputs), settings
        shares = np.array([each.share for each in self._inputs])
        self._shares = shares / shares.sum()

    def __len__(self) -> int:
        return int(self._settings.steps)

    def __getitem__(self, number: int) -> Batch:
        return self.draw(number)

    def draw(self, number: int) -> Batch:
        """Draw one batch by its number in the run."""
        generator, collection = self._begin(number)
        inputs = self._inputs[collection]
        questions = partial(self._questions, number, generator, collection)
        return Batch(inputs, self._method.draw(inputs, self._settings, generator, questions))

    def _begin(self, number: int) -> tuple[np.random.Generator, int]:
        """Return the random generator of a batch, and the number of the data set that the batch is drawn from."""
        generator = np.random.default_rng((self._settings.seed, number))
        return generator, int(generator.choice(len(self._inputs), p=self._shares))

    def _questions(self, number: int, generator: np.random.Generator, collection: int) -> NDArray[np.int64]:
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
        """Return the number of the data set that each batch of the run is drawn from."""
        return [self._begin(number)[1] for number in range(len(self))]
