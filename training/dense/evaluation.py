"""The development measure of a dense model: held-out questions searched by exact inner products of unit vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.training.data.teacher_scores import units
from termweave.training.dev_measure import DevelopmentSet, depth, ranking_measure, rankings
from termweave.training.model_folder import quantisation_check

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.training.dense.inputs import TokenIds
    from termweave.training.dense.model import Towers
    from termweave.training.setup import RunSetup


@dataclass(frozen=True, kw_only=True)
class DenseDevelopment(DevelopmentSet):
    """Held-out questions and the documents that they are searched in, as the encoders read them.

    Attributes:
        questions: Token ids.
        documents: Token ids.
        fixed: Vectors of the documents, where their encoder is not trained; None: they are encoded for every evaluation.
    """

    questions: TokenIds
    documents: TokenIds
    fixed: NDArray[np.float32] | None

    def figures(self, model: Towers, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """The measure of each question by exact search, with vectors in half precision as an index keeps them; `unrounded`: then with float32."""
        documents = model.vectors("document", self.documents) if self.fixed is None else self.fixed
        questions = model.vectors("query", self.questions)
        if not model.unit:  # the exported model is searched by cosine
            documents, questions = units(documents), units(questions)
        length, gains = depth(self.measure), self.gains()
        return [
            ranking_measure(list(rankings(questions, vectors, length, self.pairs.spared)), gains, self.measure)
            for vectors in (as_stored(documents), *([documents] if unrounded else []))
        ]

    def int8_cost(self, folder: Path, outputs: Sequence[str], setup: RunSetup) -> dict[str, Any]:
        """Search held-out questions with both graphs (`DevelopmentSet.int8_cost`)."""
        return quantisation_check.cost(folder, outputs, self, setup.texts, setup.statistics)


def as_stored(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round vectors as an index stores them for reranking: in half precision."""
    return vectors.astype(np.float16).astype(np.float32)
