"""Estimate the minutes and the memory of a dense run from a few real texts, for ``--plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.manifest import TOKENIZER
from termweave.training.backbone import loading
from termweave.training.dense.inputs import reading_of, tokenise
from termweave.training.methods.base import Cost
from termweave.training.trainer.pass_cost import parameter_bytes, pass_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from termweave.training.dense.model import Side, Towers
    from termweave.training.methods.bi_encoder import DenseParameters
    from termweave.training.setup import RunSetup

#: Texts that are encoded to measure one.
_SAMPLE = 8


def estimate(model: Towers, settings: DenseParameters, setup: RunSetup) -> Cost:
    """Run a few queries and documents forwards and backwards, and estimate time and memory from that.

    Memory is that of parameters, gradients, the optimiser's moments and the activations of one chunk; libraries and data come on top.
    """
    model.train()
    queries, documents = settings.texts()
    query_seconds, query_bytes = _one_text(model, "query", setup.train.questions, settings, setup)
    document_seconds, document_bytes = _one_text(model, "document", setup.texts, settings, setup)
    chunk = settings.chunk or max(queries, documents)
    again = 4 / 3 if max(queries, documents) > chunk else 1.0  # a cached chunk is computed forwards twice
    searched = 0 if model.fixed_documents else len(setup.texts)
    activations = max(min(chunk, documents) * document_bytes, min(chunk, queries) * query_bytes)
    model.zero_grad(set_to_none=True)
    return Cost(
        step=settings.rounds() * again * (queries * query_seconds + documents * document_seconds),
        look=settings.rounds() * (searched * document_seconds + len(setup.dev) * query_seconds) / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + activations),
    )


def _one_text(model: Towers, side: Side, texts: Sequence[str], settings: DenseParameters, setup: RunSetup) -> tuple[float, float]:
    """Seconds for a text forwards and backwards, and the bytes of its activations."""
    _, reading = reading_of(setup.backbone)
    tokenizer = ModelTokenizer(setup.backbone / TOKENIZER, lower=reading.lower)
    length = loading.length(model.backbone, settings.training_length)
    sample = tokenise(tokenizer, texts[:: max(1, len(texts) // _SAMPLE)][:_SAMPLE], length, reading.prompt(side))
    rows = np.arange(len(sample))
    seconds, activations = pass_cost(model, lambda: model.encode(side, sample, rows))
    return seconds / len(rows), activations / len(rows)
