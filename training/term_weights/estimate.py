"""Estimate the minutes and the memory of a term-weight run from a few real texts, for ``--plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from termweave.training.backbone.reading import reading_of
from termweave.training.families import RunEstimate
from termweave.training.trainer.pass_cost import pass_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.declaration import TermWeightParameters

#: Number of texts that are computed to measure one.
_SAMPLE = 8
#: Seconds of a step on cached hidden states, measured with the default settings.
_CACHED_STEP = 0.05


def estimate(model: JointModel, settings: TermWeightParameters, setup: RunSetup) -> RunEstimate:
    """Run a few questions and documents through the backbone, and estimate minutes and memory from that.

    A frozen backbone reads each text once, and nothing of what the cache holds; layers that are trained read the texts of each step, and all
    texts that are searched at each evaluation. Memory is that of parameters, gradients, the optimiser's moments and the activations of a batch.
    """
    question_seconds, question_bytes = _one_text(model, setup.train.questions, "query", settings, setup)
    document_seconds, document_bytes = _one_text(model, setup.texts, "document", settings, setup)
    questions, documents = settings.texts()
    looks, steps = settings.steps // settings.every + 1, settings.steps
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    fixed = sum(each.numel() for each in model.parameters()) - trained
    if settings.top_layers == 0:
        states = len(setup.texts) * document_seconds + (len(setup.train) + len(setup.dev)) * question_seconds
        return RunEstimate(minutes=(states + _CACHED_STEP * steps) / 60, memory_bytes=4 * (4 * trained + fixed))
    step = questions * question_seconds + documents * document_seconds
    look = (len(setup.dev) * question_seconds + len(setup.texts) * document_seconds) / 3  # forwards alone
    return RunEstimate(
        minutes=(steps * step + looks * look) / 60,
        memory_bytes=round(4 * (4 * trained + fixed) + questions * question_bytes + documents * document_bytes),
    )


def _one_text(
    model: JointModel, texts: Sequence[str], kind: Kind, settings: TermWeightParameters, setup: RunSetup
) -> tuple[float, float]:
    """Seconds for a text, forwards and where layers are trained backwards, and the bytes of its activations."""
    drawn, prompt = texts[:: max(1, len(texts) // _SAMPLE)][:_SAMPLE], reading_of(setup.backbone, settings).prompt(kind)
    sample = setup.tokenizer.encode(drawn, settings.training_length, prompt=prompt)
    ids, mask = (np.zeros((len(sample), max(len(each.ids) for each in sample)), dtype=np.int64) for _ in range(2))
    for row, pieces in enumerate(sample):
        ids[row, : len(pieces.ids)], mask[row, : len(pieces.ids)] = pieces.ids, 1
    features = torch.zeros((*ids.shape, 3))
    seconds, activations = pass_cost(
        model, lambda: torch.cat(model.states(torch.from_numpy(ids), torch.from_numpy(mask), features))
    )
    model.zero_grad(set_to_none=True)
    return seconds / len(sample), activations / len(sample)
