"""What a ranker run will take, from a few real pairs: minutes and memory for ``--plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.training.families import RunEstimate
from termweave.training.ranker.model import read
from termweave.training.ranker.preparation import reader_of
from termweave.training.trainer.pass_cost import parameter_bytes, pass_cost

if TYPE_CHECKING:
    from termweave.training.ranker.declaration import RankerParameters
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.setup import RunSetup

#: Pairs that are scored to measure one.
_SAMPLE = 8


def estimate(model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> RunEstimate:
    """Score a few pairs, forwards and backwards, and count.

    Minutes cover all steps of one fit and its evaluations on this machine as busy as it is now, the first stage apart. Memory is that of
    parameters, gradients, the optimiser's moments and the activations of one chunk.
    """
    texts = setup.texts[:: max(1, len(setup.texts) // _SAMPLE)][:_SAMPLE]
    pairs = read(reader_of(setup, model, settings), setup.train.questions[0], texts)
    seconds, kept = pass_cost(model, lambda: model(pairs))
    seconds, activations = seconds / len(pairs), kept / len(pairs)
    model.zero_grad(set_to_none=True)
    scored, chunk = settings.scored(), settings.chunk
    again = 4 / 3 if chunk and scored > chunk else 1.0  # a cached chunk is computed forwards twice
    looks = settings.steps // settings.every + 1
    looking = len(setup.dev) * settings.reranked * seconds / 3  # forwards alone
    return RunEstimate(
        minutes=(settings.steps * again * scored * seconds + looks * looking) / 60,
        memory_bytes=round(parameter_bytes(model) + min(chunk or scored, scored) * activations),
    )
