"""Candidate lists: for each question its best documents by some ranking.

Lists come from the model's own vectors, from BM25, from a run file or from a live index (`mined`). Memory stays bounded: scores are computed
in blocks. Lists of the model are kept in the cache folder under everything that they depend on, so that a run that is started again does not
encode again. A live index is always asked: its profiles and documents may have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave import settings as machine_settings
from termweave.engine import connect
from termweave.errors import InputError, UsageError
from termweave.search import Index
from termweave.support import atomic_files, paths, private_files
from termweave.training import backbone_model
from termweave.training.data.teacher_scores import by_question
from termweave.training.dev_measure import rankings
from termweave.training.ranker.first_stage import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.training.data.bm25_index import SparseIndex
    from termweave.training.dense.preparation import TargetContext

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


def nearest(queries: NDArray[np.float32], documents: NDArray[np.float32], depth: int) -> RankedLists:
    """The documents with the largest inner products, ties by index: an exact search in blocks of bounded memory."""
    return RankedLists(np.stack([columns for columns, _ in rankings(queries, documents, depth)]))


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


def mined(context: TargetContext, ranking: str, depth: int) -> RankedLists:
    """The best documents of each training question.

    Args:
        context: Questions, documents and the model.
        ranking: "model", "bm25", "index:NAME", or the path of a run file.
        depth: Length of a list.

    Raises:
        UsageError: The live index has none of the documents.
        InputError: The run file cannot be used.
    """
    if ranking == "model":
        model = context.model
        towers = [backbone_model.fingerprint(model.tower(side)) for side in ("query", "document")]
        known = [ranking, *towers, model.pooling, str(model.unit)]
        return _cached(context, known, depth, lambda: nearest(context.question_vectors, context.document_vectors, depth))
    setup, questions = context.setup, context.setup.train.questions
    if ranking == "bm25":
        return by_bm25(setup.bm25_index, setup.bm25_weights(questions, "query"), depth)
    if ranking.startswith(INDEX):
        return _by_index(context, Index.pinned(connect(machine_settings.load()), ranking.removeprefix(INDEX)), depth)
    return from_run(Path(ranking), questions, setup.examples.queries, setup.positions, depth)


def by_bm25(index: SparseIndex, questions: Sequence[TermWeights], depth: int) -> RankedLists:
    """The best documents of an inverted index; a document without a word of the question is in no list."""
    return filled([index.search(question, depth)[0].tolist() for question in questions], depth)


def _by_index(context: TargetContext, index: Index, depth: int) -> RankedLists:
    """What a live index finds with its adopted profile; documents that are not trained on are passed over."""
    questions = context.setup.train.questions
    context.say(f"{context.part.name}: asking the index {index.name} {len(questions):,} questions")
    run = index.run({str(row): question for row, question in enumerate(questions)}, k=depth, candidates=depth)
    place = context.setup.positions
    lists = [[place[each] for each in run.scores[str(row)] if each in place] for row in range(len(questions))]
    if not any(lists):
        raise UsageError(
            f"The index {index.name} found no document of {context.part.name}.",
            "Name an index of the same documents, by their ids.",
        )
    return filled(lists, depth)


def _cached(context: TargetContext, what: list[str], depth: int, compute: Callable[[], RankedLists]) -> RankedLists:
    state = blake2b(repr([*what, depth, context.setup.places]).encode(), digest_size=12)
    for texts in (context.inputs.questions, context.inputs.documents):
        for array in (texts.values, texts.starts):
            state.update(np.ascontiguousarray(array).data)
    file = paths.cache() / "candidates" / f"{state.hexdigest()}.npy"
    if file.is_file():
        return RankedLists(np.load(file))
    lists = compute()
    buffer = BytesIO()
    np.save(buffer, lists.documents)
    private_files.make_folder(file.parent)
    atomic_files.write(file, buffer.getvalue(), private=True)
    return lists
