"""Compute the term weights of many texts with a model in training, and measure them on held-out questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from termweave.encoders.term_weighting import place_tags
from termweave.training.dev_measure import DevelopmentSet, search_measure, stored
from termweave.training.model_folder import quantisation_check
from termweave.training.term_weights.batch import padded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Kind
    from termweave.records import TermWeights
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.batch import Prepared
    from termweave.training.term_weights.hidden_states import States

#: Number of texts computed at once, from cached states and by forward passes.
_BLOCK, _LIVE_BLOCK = 256, 16


@dataclass(frozen=True, kw_only=True)
class TermWeightDevelopment(DevelopmentSet):
    """Held-out questions and the part of the corpus in which they are searched.

    Attributes:
        documents: The analysed documents.
        questions: The analysed questions.
        document_states: Hidden states of the documents; None if the backbone is trained.
        question_states: Hidden states of the questions; None if the backbone is trained.
    """

    documents: Prepared
    questions: Prepared
    document_states: States | None
    question_states: States | None

    def figures(self, model: JointModel, *, unrounded: bool = False) -> list[NDArray[np.float64]]:
        """Compute the measure of the model for each question, with weights as an index stores them; `unrounded`: then with floats."""
        documents = weigh(model, self.documents, self.document_states, "document")
        questions = weigh(model, self.questions, self.question_states, "query")
        return [
            search_measure(stored(documents, bits), questions, self.gains(), self.pairs.spared, self.measure)
            for bits in (self.bits, *([0] if unrounded else []))
        ]

    def int8_cost(self, folder: Path, outputs: Sequence[str], setup: RunSetup) -> dict[str, Any]:
        """Search held-out questions with both graphs (`DevelopmentSet.int8_cost`)."""
        return quantisation_check.cost(folder, outputs, self, setup.texts, setup.statistics)


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def weigh(model: JointModel, prepared: Prepared, states: States | None, kind: Kind) -> list[TermWeights]:
    """Compute term weights as the exported model does: heads on cached states, or forward passes if no states are cached."""
    weighed: list[TermWeights] = []
    size = _BLOCK if states is not None else _LIVE_BLOCK
    for first in range(0, len(prepared.pieces), size):
        texts = range(first, min(first + size, len(prepared.pieces)))
        logits = _cached(model, prepared, states, kind, texts) if states is not None else _live(model, prepared, kind, texts)
        for text, z in zip(texts, logits, strict=True):
            weighed.append(prepared.anchors[text].weights(z, prepared.pieces[text].words, kind))
    return weighed


def _features(prepared: Prepared, text: int, kind: Kind) -> NDArray[np.float32]:
    words = prepared.pieces[text].words
    return np.column_stack((prepared.anchors[text].features(words, kind), place_tags(words))).astype(np.float32)


def _cached(model: JointModel, prepared: Prepared, states: States, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    head = model.heads.head(kind)
    device = next(head.parameters()).device
    starts = states.starts[texts.start : texts.stop + 1]
    hidden = torch.from_numpy(states.values[starts[0] : starts[-1]].astype(np.float32)).to(device)
    features = torch.from_numpy(np.concatenate([_features(prepared, text, kind) for text in texts])).to(device)
    lengths = np.diff(starts)
    means = states.means[texts.start : texts.stop] if head.gated else np.zeros((len(texts), 1), dtype=np.float32)
    z = head(hidden, features, torch.from_numpy(np.repeat(means, lengths, axis=0)).to(device))
    return np.split(z.cpu().numpy(), np.cumsum(lengths)[:-1])


def _live(model: JointModel, prepared: Prepared, kind: Kind, texts: range) -> list[NDArray[np.float32]]:
    device = next(model.heads.parameters()).device
    pieces = [prepared.pieces[text] for text in texts]
    inputs = padded(pieces, [_features(prepared, text, kind) for text in texts])
    outputs = model(*(each.to(device) for each in inputs))
    chosen = outputs[0 if kind == "document" else 1].cpu().numpy()
    return [row[: len(each.ids)] for row, each in zip(chosen, pieces, strict=True)]


def last_layer(states: States, width: int) -> States:
    """Return states without the lower layer, for heads that read only the last layer."""
    return replace(states, values=states.values[:, width:])
