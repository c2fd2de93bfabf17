"""Parameters that all dense methods share, and how such a method is declared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.methods.base import TrainingMethod
from termweave.training.methods.parameter_declaration import ParameterGroup, TrainingParameter
from termweave.training.methods.parameters import BACKBONE, FROM_SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from termweave.training.dense.inputs import DenseInputs
    from termweave.training.dense.preparation import TargetContext


def _no_targets(_: TargetContext) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class DenseMethod(TrainingMethod):
    """A method that trains vectors.

    Attributes:
        draw: ``(inputs, settings, generator) -> the method's own batch``.
        targets: What is computed once before training, such as soft labels; it is `DenseInputs.targets` afterwards.
        texts: ``(settings) -> (queries, documents)`` that a step encodes at most, for ``--plan``.
        rounds: ``(settings) -> number of fits`` of a run, for ``--plan``.
    """

    family: str = "dense"
    draw: Callable[[DenseInputs, Mapping[str, Any], np.random.Generator], Any]
    targets: Callable[[TargetContext], Any] = _no_targets
    texts: Callable[[Mapping[str, Any]], tuple[int, int]]
    rounds: Callable[[Mapping[str, Any]], int] = lambda _: 1


def with_defaults(group: ParameterGroup, **defaults: Any) -> ParameterGroup:
    """A group of parameters in which some have another default."""
    parameters = [replace(each, default=defaults.get(each.name, each.default)) for each in group.parameters]
    return replace(group, parameters=tuple(parameters))


def towers(default: str) -> TrainingParameter:
    """The setting `towers`, whose default differs between methods."""
    return TrainingParameter(
        "towers",
        default,
        "Encoders: one for queries and documents, two that begin alike, or two of which only the query encoder is trained (query).",
        ("one", "two", "query"),
    )


def _check_backbone(settings: Mapping[str, Any]) -> None:
    if settings["top_layers"] == 0:
        raise UsageError(
            "A dense method trains layers, and top_layers=0 freezes all of them.", "Set top_layers=-1, or 1 and more."
        )


#: The backbone of a dense model: its layers are trained by default.
ENCODER = ParameterGroup(
    "Encoder",
    (
        *(each for each in with_defaults(BACKBONE, top_layers=-1).parameters),
        TrainingParameter(
            "reinitialise",
            0,
            "Top layers that begin with new random weights: a backbone that is a retriever already becomes nearer to plain BERT.",
            least=0,
            most=1000,
        ),
        TrainingParameter(
            "chunk",
            32,
            "Texts whose activations are kept at a time (gradient caching): memory is that of a chunk, the loss that of the batch; 0: all.",
            least=0,
        ),
    ),
    _check_backbone,
    lambda given: {"top_layers": -1} if given.get("backbone") == FROM_SCRATCH else {},
)


def _check_mining(settings: Mapping[str, Any]) -> None:
    if settings["refresh_every"] and settings["mined_by"] != "model":
        raise UsageError(
            f"refresh_every mines with the model in training, and mined_by is {settings['mined_by']}.",
            "Set mined_by=model, or leave refresh_every out.",
        )


#: Wrong documents that look right.
MINING = ParameterGroup(
    "Hard negatives",
    (
        TrainingParameter("negatives", 20, "Wrong documents of each question to draw from; 0: none.", least=0, most=10_000),
        TrainingParameter("drawn", 1, "How many of them each question gets in a batch.", least=0, most=10_000),
        TrainingParameter(
            "mined_by",
            "bm25",
            "Ranking that hard negatives come from: bm25, the model itself (model), a live index (index:NAME), or a file: a TREC run or "
            "lines of query, document, score.",
        ),
        TrainingParameter(
            "refresh_every",
            0,
            "With mined_by=model: steps after which hard negatives are mined again, with the model as it is then; 0: never.",
            least=0,
        ),
        TrainingParameter(
            "margin",
            -1.0,
            "Leave out a negative whose cosine is above that of the best right answer minus the margin: it is probably right. -1: leave out "
            "none.",
            least=-1,
            most=2,
        ),
    ),
    _check_mining,
)
