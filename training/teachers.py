"""Scores of pairs to distil (FecTek, 4.1.3), from any scorer: a file of scores, or the backbone's own vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.training.prospect import Prospect
    from termweave.training.states import States


def read(
    spec: str,
    ahead: Prospect,
    documents: States | None,
    questions: States | None,
    negatives: Sequence[NDArray[np.int64]],
    width: int,
) -> list[Mapping[int, float]]:
    """What a teacher says of each training question: document -> score.

    Args:
        spec: "dense", or a file.
        ahead: What is trained on.
        documents: Hidden states, for "dense".
        questions: Likewise.
        negatives: Of each question.
        width: Of a hidden state.

    Raises:
        UsageError: There is no such file.
        InputError: It scores no pair of a training question.
    """
    if spec == "dense":
        assert documents is not None
        assert questions is not None
        of_documents, of_questions = _vectors(documents, width), _vectors(questions, width)
        found: list[Mapping[int, float]] = []
        for question, (known, hard) in enumerate(zip(ahead.train.relevant, negatives, strict=True)):
            places = sorted({*known, *hard.tolist()})
            scores = of_documents[places] @ of_questions[question]
            found.append(dict(zip(places, scores.tolist(), strict=True)))
        return found
    return _from_file(Path(spec), ahead)


def _vectors(states: States, width: int) -> NDArray[np.float32]:
    means = states.means[:, -width:]
    scaled: NDArray[np.float32] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    return scaled


def _from_file(path: Path, ahead: Prospect) -> list[Mapping[int, float]]:
    if not path.is_file():
        raise UsageError(f"There is no file of scores {path}.", "Name a TREC run, or set teacher=dense.")
    position = {ahead.found.ids[place]: index for index, place in enumerate(ahead.places)}
    text_of = dict(zip(ahead.found.sources, ahead.found.train.questions, strict=True))
    scores: dict[str, dict[int, float]] = {}
    for query, document, score in scored(path):
        if document in position:
            scores.setdefault(text_of.get(query, query), {})[position[document]] = score
    found: list[Mapping[int, float]] = [scores.get(question, {}) for question in ahead.train.questions]
    if not any(found):
        raise InputError(f"{path} scores no pair of a training question.", "Its queries are ids or texts of the training split.")
    return found


def scored(path: Path) -> Iterator[tuple[str, str, float]]:
    """Lines of a TREC run (query, Q0, document, rank, score, name) or of query, document, score with tabs between them.

    Raises:
        InputError: A line is neither.
    """
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            tabs, parts = line.rstrip("\r\n").split("\t"), line.split()
            try:
                if len(tabs) == 3:
                    yield tabs[0], tabs[1], float(tabs[2])
                elif len(parts) >= 5:
                    yield parts[0], parts[2], float(parts[4])
                elif parts:
                    raise ValueError  # noqa: TRY301 - the same sentence for both
            except ValueError:
                raise InputError(
                    f"{path}, line {number} is no score: {line.strip()[:60]!r}.",
                    "Write query, document and score with tabs between them.",
                ) from None
