"""Estimate the minutes and the memory of a term-weight run from a few real texts, for ``--plan``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from termweave.encoders.term_weighting import BM25
from termweave.training.backbone import loading
from termweave.training.backbone.reading import reading_of
from termweave.training.methods.base import Cost
from termweave.training.term_weights import evaluation, hidden_states
from termweave.training.term_weights.batch import padded
from termweave.training.term_weights.inputs import prepare
from termweave.training.trainer.pass_cost import parameter_bytes, pass_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.encoders.models.joint_model import JointModel
    from termweave.encoders.term_weighting import Kind
    from termweave.training.methods.term_weights import TermWeightParameters
    from termweave.training.setup import RunSetup

#: Number of texts that are computed to measure one, with gradients and without.
_SAMPLE, _READ = 8, 32


def estimate(model: JointModel, settings: TermWeightParameters, setup: RunSetup) -> Cost:
    """Run a few questions and documents through the backbone, and estimate time and memory from that.

    A frozen backbone reads each text once, and nothing of what the cache holds; layers that are trained read the texts of each step, and all
    texts that are searched at each evaluation. Memory is that of parameters, gradients, the optimiser's moments and the activations of a batch.
    """
    questions, documents = settings.texts()
    if settings.top_layers == 0:
        read_document, weigh_document = _one_cached_text(model, setup.texts, "document", settings, setup)
        read_question, weigh_question = _one_cached_text(model, setup.train.questions, "query", settings, setup)
        return Cost(
            step=3 * (questions * weigh_question + documents * weigh_document),  # forwards, and twice that backwards
            look=len(setup.dev) * weigh_question + len(setup.texts) * weigh_document,
            memory_bytes=parameter_bytes(model),
            preparing=len(setup.texts) * read_document + (len(setup.train) + len(setup.dev)) * read_question,
        )
    question_seconds, question_bytes = _one_text(model, setup.train.questions, "query", settings, setup)
    document_seconds, document_bytes = _one_text(model, setup.texts, "document", settings, setup)
    return Cost(
        step=questions * question_seconds + documents * document_seconds,
        look=(len(setup.dev) * question_seconds + len(setup.texts) * document_seconds) / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + questions * question_bytes + documents * document_bytes),
    )


def _one_cached_text(
    model: JointModel, texts: Sequence[str], kind: Kind, settings: TermWeightParameters, setup: RunSetup
) -> tuple[float, float]:
    """Seconds in which the frozen backbone reads a text, with the graph of the run, and in which the heads weigh it from cached states."""
    drawn, prompt = texts[:: max(1, len(texts) // _READ)][:_READ], reading_of(setup.backbone, settings)[1].prompt(kind)
    length = loading.length(model.backbone, settings.training_length)
    common = (setup.analysis, setup.tokenizer, setup.statistics, BM25())
    prepared = prepare(drawn, *common, kind, length, settings.form(), prompt)
    starts = np.cumsum([0, *(len(each.ids) for each in prepared.pieces)])
    width = int(model.backbone.config.hidden_size) * (2 if model.shape.lower else 1)
    states = hidden_states.States(np.zeros((int(starts[-1]), width), dtype=np.float16), starts)
    begun = time.monotonic()
    evaluation.weigh(model, prepared, states, kind)
    weighing = time.monotonic() - begun
    return hidden_states.seconds_of(model, prepared.pieces) / len(drawn), weighing / len(drawn)


def _one_text(
    model: JointModel, texts: Sequence[str], kind: Kind, settings: TermWeightParameters, setup: RunSetup
) -> tuple[float, float]:
    """Seconds for a text, forwards and where layers are trained backwards, and the bytes of its activations."""
    drawn, prompt = texts[:: max(1, len(texts) // _SAMPLE)][:_SAMPLE], reading_of(setup.backbone, settings)[1].prompt(kind)
    sample = setup.tokenizer.encode(drawn, settings.training_length, prompt=prompt)
    inputs = padded(sample, [np.zeros((1, 3))] * len(sample))
    seconds, activations = pass_cost(model, lambda: torch.cat(model.states(*inputs)))
    model.zero_grad(set_to_none=True)
    return seconds / len(sample), activations / len(sample)
