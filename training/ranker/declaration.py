"""Parameters that all ranker methods share, and how such a method is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.dense.declaration import with_defaults
from termweave.training.methods.base import TrainingMethod
from termweave.training.methods.parameter_declaration import ParameterGroup, TrainingParameter
from termweave.training.methods.parameters import BACKBONE, FROM_SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class RankerMethod(TrainingMethod):
    """A method that trains a ranker.

    Attributes:
        block: ``(settings) -> documents of a question that the sampler draws for a step``, the right one included.
        scored: ``(settings) -> pairs that a step scores``, for ``--plan``.
    """

    family: str = "ranker"
    block: Callable[[Mapping[str, Any]], int]
    scored: Callable[[Mapping[str, Any]], int]


def _check_backbone(settings: Mapping[str, Any]) -> None:
    if settings["top_layers"] == 0:
        raise UsageError("A ranker trains layers, and top_layers=0 freezes all of them.", "Set top_layers=-1, or 1 and more.")


#: The backbone of a ranker: its layers are trained by default.
CROSS_ENCODER = ParameterGroup(
    "Cross-encoder",
    (
        *with_defaults(BACKBONE, top_layers=-1).parameters,
        TrainingParameter(
            "chunk",
            32,
            "Pairs whose activations are kept at a time (gradient caching): memory is that of a chunk, the loss that of the batch; 0: all.",
            least=0,
        ),
    ),
    _check_backbone,
    lambda given: {"top_layers": -1} if given.get("backbone") == FROM_SCRATCH else {},
)

CANDIDATES = ParameterGroup(
    "Candidates",
    (
        TrainingParameter(
            "candidates_from",
            "hybrid",
            "First stage: hybrid (what hybrid search with the shipped model finds), bm25, a live index (index:NAME), or a run file, as "
            "`evaluate --save-run` writes it.",
        ),
        TrainingParameter(
            "candidates_mode", "hybrid", "With candidates_from=index:NAME: the mode in which the index is searched."
        ),
        TrainingParameter(
            "candidates", 100, "Best documents of the first stage that negatives are drawn from.", least=2, most=10_000
        ),
        TrainingParameter(
            "reranked", 30, "Documents of a development question that are reranked to decide when to stop.", least=2, most=1000
        ),
        TrainingParameter(
            "anchor",
            default=True,
            help="Add the score of the first stage to the logit, with a factor that is learned, and start with a logit that adds nothing: "
            "the ranker begins as the first stage.",
        ),
        TrainingParameter("anchor_scale", 10.0, "Factor of the first stage's score as training begins.", above=0, most=1000),
    ),
)
