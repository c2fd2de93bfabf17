"""The lesson of `bert_scorer`: one number a piece, and what it should have been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from termweave.training import targets
from termweave.training.lessons import Batch, Lesson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.encoders.models.anchored import JointModel
    from termweave.encoders.weighting import Kind
    from termweave.training.materials import Material
    from termweave.training.sides import Side


class Regression(Lesson):
    """`bert-scorer`: see there."""

    def __init__(self, model: JointModel, materials: Sequence[Material], settings: Mapping[str, Any]) -> None:
        super().__init__(model, materials, settings)
        self._asked_by = [_asked_by(material) for material in self.materials]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of a batch."""
        documents, material = batch.documents[: len(batch.questions)], self.materials[batch.material]
        asked, given = material.questions.anchors, material.documents.anchors
        losses: list[Tensor] = []
        if self.settings["target"] == "recall":
            asked_by = self._asked_by[batch.material]
            found = [targets.recall(given[y], [asked[x] for x in asked_by[y]]) for y in documents.tolist()]
            losses.append(self._errors(batch, documents, "document", found))
        else:
            pairs = zip(batch.questions.tolist(), documents.tolist(), strict=True)
            found = [targets.tfidf(asked[x], given[y], material.statistics) for x, y in pairs]
            losses.append(self._errors(batch, batch.questions, "query", found))
            if self.settings["sides"] == "both":
                own = [targets.tfidf(given[y], given[y], material.statistics) for y in documents.tolist()]
                losses.append(self._errors(batch, documents, "document", own))
        errors = torch.cat(losses)
        return {"loss": errors.mean() if len(errors) else errors.sum()}  # no text of the batch has a term

    def _errors(self, batch: Batch, texts: NDArray[np.int64], kind: Kind, wanted: Sequence[NDArray[np.float64]]) -> Tensor:
        """Squared errors of every piece (Eq. 4): ``(P,)``."""
        side = self.side(batch, texts, {}, kind, everything=True)
        inner, _ = self.seen(batch, side)
        share = torch.from_numpy(piece_targets(side, wanted) * self.settings["target_scale"]).to(inner)
        return (self.heads.of(kind).outer(inner).squeeze(-1) - share) ** 2


def _asked_by(material: Material) -> dict[int, list[int]]:
    """For each relevant document the questions that it answers."""
    found: dict[int, list[int]] = {}
    for question, relevant in enumerate(material.pairs.relevant):
        for document in relevant:
            found.setdefault(document, []).append(question)
    return found


def piece_targets(side: Side, wanted: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The target of each chosen piece: that of its word, shared out among the word's pieces."""
    _, inverse, counts = np.unique(side.word, return_inverse=True, return_counts=True)
    of_term = np.array(
        [wanted[row][term] for row, term in zip(side.row.tolist(), side.term.tolist(), strict=True)], dtype=np.float64
    )
    return of_term / counts[inverse]
