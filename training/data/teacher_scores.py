"""Teacher scores of questions with documents (FecTek, 4.1.3): from a file of scores, from the backbone's own vectors, or from vectors and BM25.

A file has scores of some pairs; the other teachers score every document, so that each document of a batch counts for each question.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from termweave.corpora.formats import lines
from termweave.errors import InputError, UsageError
from termweave.evaluation import runs
from termweave.support import atomic_files
from termweave.support.messages import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.records import TermWeights
    from termweave.training.data.bm25_index import SparseIndex
    from termweave.training.setup import RunSetup

NONE = "none"
#: Teachers that need the hidden states of the backbone as it came.
MADE = ("dense", "minmax", "zscore")
#: Before the name of a cross-encoder that scores the pairs (`ranker.teacher`).
RANKER = "ranker:"


class Teacher(Protocol):
    """A scorer of questions with documents, whose scores a model learns to imitate."""

    def scores(self, questions: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score every question with every document: float64 ``(Q, D)``; -inf where there is no score."""
        ...


@dataclass(frozen=True)
class Distilled:
    """A teacher and its weight.

    Attributes:
        teacher: The scorer.
        weight: Weight of the distillation loss, beside the loss of the right document.
        temperature: The teacher's scores are divided by it.
    """

    teacher: Teacher
    weight: float
    temperature: float


@dataclass(frozen=True)
class Written:
    """A teacher whose scores are read from a file.

    Attributes:
        known: For each question, document -> score.
    """

    known: Sequence[Mapping[int, float]]

    def scores(self, questions: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score every question with every document, as `Teacher.scores` describes."""
        rows = [self.known[question] for question in questions.tolist()]
        return np.array([[row.get(document, -np.inf) for document in documents.tolist()] for row in rows], dtype=np.float64)


@dataclass(frozen=True)
class Vectors:
    """A teacher that scores by the cosine of the backbone's vectors.

    Attributes:
        documents: Unit vectors, float32 ``(N, d)``.
        questions: Unit vectors, float32 ``(M, d)``.
    """

    documents: NDArray[np.float32]
    questions: NDArray[np.float32]

    def every(self, questions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score every document of the collection for each question: ``(Q, N)``."""
        return (self.questions[questions] @ self.documents.T).astype(np.float64)

    def scores(self, questions: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score every question with every document, as `Teacher.scores` describes."""
        return (self.questions[questions] @ self.documents[documents].T).astype(np.float64)


@dataclass(frozen=True)
class Sum:
    """A teacher that adds BM25 and cosine, each scaled over all documents of a question, as a hybrid search does.

    Attributes:
        vectors: The cosines.
        index: BM25's impacts of the documents.
        question_terms: Terms of the questions.
        scaling: "minmax": to the range from 0 to 1; "zscore": to mean 0 and deviation 1.
    """

    vectors: Vectors
    index: SparseIndex
    question_terms: Sequence[TermWeights]
    scaling: str

    def scores(self, questions: NDArray[np.int64], documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Score every question with every document, as `Teacher.scores` describes."""
        words = np.stack([self.index.scores(self.question_terms[question]) for question in questions.tolist()])
        return self._scaled(words)[:, documents] + self._scaled(self.vectors.every(questions))[:, documents]

    def _scaled(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return minmax(rows) if self.scaling == "minmax" else _scaled(rows, rows.mean(axis=-1), rows.std(axis=-1))


def minmax(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each row of scores ``(..., N)`` to the range from 0 to 1; a row of equal scores becomes 0."""
    return _scaled(rows, rows.min(axis=-1), np.ptp(rows, axis=-1))


def _scaled(rows: NDArray[np.float64], base: NDArray[np.float64], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = (rows - base[..., None]) / np.where(unit > 0, unit, 1.0)[..., None]
    return result


def vector_teacher(spec: str, setup: RunSetup, documents: NDArray[np.float32], questions: NDArray[np.float32]) -> Teacher:
    """Make a teacher of the backbone's vectors.

    Args:
        spec: One of `MADE`.
        setup: The data set, whose BM25 "minmax" and "zscore" add to the vectors.
        documents: The pooled states of the last layer of each document, float32 ``(N, d)``; they need not have length 1.
        questions: Likewise, of each training question.
    """
    vectors = Vectors(units(documents), units(questions))
    if spec == "dense":
        return vectors
    return Sum(vectors, setup.bm25_index, setup.bm25_weights(setup.train.questions, "query"), spec)


def units(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale each row to length 1."""
    scaled: NDArray[np.float32] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return scaled


def write_array(file: Path, array: NDArray[Any], *, private: bool = False) -> None:
    """Write an array to a numpy file, whole or not at all; `private`: only the owner of the file may read it."""
    content = io.BytesIO()
    np.save(content, array)
    atomic_files.write(file, content.getvalue(), private=private)


def written(spec: str, setup: RunSetup) -> Written | None:
    """Read teacher scores from a file; None if the setting does not name a file.

    Raises:
        UsageError: There is no such file.
        InputError: As `by_question`.
    """
    if spec in (NONE, *MADE) or spec.startswith(RANKER):
        return None
    path = Path(spec)
    if not path.is_file():
        raise UsageError(f"There is no file of scores {path}.", f"Name a TREC run, or set teacher={', '.join((*MADE, NONE))}.")
    scores = by_question(path, setup.examples.queries, setup.positions, setup.train.questions)
    return Written([scores.get(question, {}) for question in setup.train.questions])


def by_question(
    path: Path, queries: Mapping[str, str], documents: Mapping[str, int], questions: Collection[str]
) -> dict[str, dict[int, float]]:
    """Return question -> index of a document -> score, from a file as `scored` reads it.

    Args:
        path: The file. It names queries by id or by text; the rows of two ids with the same text belong to one question.
        queries: Id of a query -> its text.
        documents: Id of a document -> its index; rows about other documents are passed over.
        questions: Texts of the training questions; the file must name one at least.

    Raises:
        InputError: As `scored`, or the file names no training question with a document.
    """
    scores: dict[str, dict[int, float]] = {}
    for query, document, score in scored(path):
        if document in documents:
            scores.setdefault(queries.get(query, query), {})[documents[document]] = score
    if scores.keys().isdisjoint(questions):
        raise InputError(
            f"{path} names none of the {counted(len(questions), 'question')} with a document of this corpus.",
            "Name a file of `evaluate NAME DATASET:train --save DIR`, or one with the ids or texts of these questions and ids of the corpus.",
        )
    return scores


def scored(path: Path) -> Iterator[tuple[str, str, float]]:
    """Yield (query, document, score) for each row of a TREC run, or of a file whose lines are these three with tabs between them.

    Raises:
        InputError: A line has another format than the first line.
    """
    first = next((line for _, line in lines.raw_lines(path) if line is not None and line.strip()), b"")
    if first.count(b"\t") != 2:
        for query, ranked in runs.read(path).scores.items():
            yield from ((query, document, score) for document, score in ranked.items())
        return
    for number, raw in lines.raw_lines(path):
        line = (raw or b"").removeprefix(lines.BOM).decode(errors="replace").strip("\r\n")
        if not line.strip():
            continue
        try:
            query, document, text = line.split("\t")
            score = float(text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise InputError(f"{path}, line {number} is not a score: {line[:60]!r}.", "Write query, tab, document, tab, score.")
        yield query, document, score
