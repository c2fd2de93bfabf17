"""What a ranker run will take, from a few real pairs: seconds and memory for ``--plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.training.methods.base import Cost
from termweave.training.ranker.model import read
from termweave.training.ranker.preparation import reader_of
from termweave.training.trainer.pass_cost import parameter_bytes, pass_cost

if TYPE_CHECKING:
    from termweave.training.methods.cross_encoder import RankerParameters
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup

#: Pairs that are scored to measure one.
_SAMPLE = 8


def estimate(model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> Cost:
    """Score a few pairs, forwards and backwards, and estimate time and memory from that, the first stage apart.

    Memory is that of parameters, gradients, the optimiser's moments and the activations of one chunk.
    """
    texts = setup.texts[:: max(1, len(setup.texts) // _SAMPLE)][:_SAMPLE]
    pairs = read(reader_of(setup, model, settings), setup.train.questions[0], texts)
    seconds, activations = (each / len(pairs) for each in pass_cost(model, lambda: model(pairs)))
    model.zero_grad(set_to_none=True)
    scored, chunk = settings.scored(), settings.chunk
    again = 4 / 3 if chunk and scored > chunk else 1.0  # a cached chunk is computed forwards twice
    return Cost(
        step=again * scored * seconds,
        look=len(setup.dev) * settings.reranked * seconds / 3,  # forwards alone
        memory_bytes=round(parameter_bytes(model) + min(chunk or scored, scored) * activations),
    )
