"""Candidate lists: for each question its best documents by some ranking, and which of them may be negatives.

Lists come from the model's own vectors (`nearest`), from a BM25 index (`by_bm25`), from a run file (`from_run`) or from a live index
(`mining.mined`). They are computed in blocks, so that memory stays bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import InputError
from termweave.training.data.teacher_scores import by_question
from termweave.training.dev_measure import rankings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.training.data.bm25_index import SparseIndex

#: Fills up a list that is shorter than the others.
NOTHING = -1


@dataclass(frozen=True)
class RankedLists:
    """The best documents of each question.

    Attributes:
        documents: int64 ``(Q, N)``, best first; `NOTHING` at the end of a shorter list.
    """

    documents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Where a list holds a document: bool ``(Q, N)``."""
        present: NDArray[np.bool_] = self.documents != NOTHING
        return present

    def without(self, spared: Sequence[frozenset[int]]) -> RankedLists:
        """Leave documents out of the lists; what is behind them moves up."""
        documents = np.full_like(self.documents, NOTHING)
        for row, left_out in enumerate(spared):
            own = [each for each in self.documents[row].tolist() if each not in left_out]
            documents[row, : len(own)] = own
        return RankedLists(documents)

    def with_relevant(self, relevant: Sequence[frozenset[int]]) -> RankedLists:
        """Put the judged documents that a list lacks into its last places: a list-wise loss needs them in it."""
        width = max([self.documents.shape[1], *(len(judged) for judged in relevant)])
        documents = np.full((len(self), width), NOTHING, dtype=np.int64)
        for row, judged in enumerate(relevant):
            own = [each for each in self.documents[row].tolist() if each != NOTHING]
            missing = sorted(judged - set(own))
            places = [place for place, each in enumerate(own) if each not in judged]  # no judged document makes room for another
            excess = max(0, len(own) + len(missing) - width)
            dropped = set(places[len(places) - excess :])
            kept = [each for place, each in enumerate(own) if place not in dropped]
            documents[row, : len(kept) + len(missing)] = kept + missing
        return RankedLists(documents)

    def negatives(self, known: Sequence[frozenset[int]]) -> list[NDArray[np.int64]]:
        """Return the wrong answers of each list, best first: documents that are not `known` to be right."""
        return [
            np.array([each for each in row if each != NOTHING and each not in spared], np.int64)
            for row, spared in zip(self.documents.tolist(), known, strict=True)
        ]


def nearest(queries: NDArray[np.float32], documents: NDArray[np.float32], depth: int) -> RankedLists:
    """The documents with the largest inner products, ties by index: an exact search in blocks of bounded memory."""
    return RankedLists(np.stack([columns for columns, _ in rankings(queries, documents, depth)]))


def by_bm25(index: SparseIndex, questions: Sequence[TermWeights], depth: int) -> RankedLists:
    """The best documents of an inverted index; a document without a word of the question is in no list."""
    return filled([index.search(question, depth)[0].tolist() for question in questions], depth)


def from_run(
    file: Path, questions: Sequence[str], queries: Mapping[str, str], documents: Mapping[str, int], depth: int
) -> RankedLists:
    """The best documents of a TREC run, or of lines of query, document and score.

    Args:
        file: The run.
        questions: Texts of the training questions.
        queries: Id of each question -> its text; the file names them by either.
        documents: Id of each document -> its index.
        depth: Length of a list.

    Raises:
        InputError: The file cannot be read as a run, or names no training question with a document of the collection.
    """
    scores = by_question(file, queries, documents)
    if not any(question in scores for question in questions):
        raise InputError(
            f"The run {file} names no training question with a document of this collection.",
            "Make the run with the training questions, for example: termweave evaluate NAME DATASET:train --save DIR.",
        )
    ranked = [scores.get(question, {}) for question in questions]
    return filled([sorted(own, key=lambda each: (-own[each], each))[:depth] for own in ranked], depth)


def filled(lists: Sequence[Sequence[int]], depth: int) -> RankedLists:
    """Lists of different lengths as one array, `depth` documents each at most."""
    documents = np.full((len(lists), depth), NOTHING, dtype=np.int64)
    for row, own in enumerate(lists):
        documents[row, : len(own)] = own
    return RankedLists(documents)
