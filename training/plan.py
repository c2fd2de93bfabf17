"""Plan a training run without starting it, for `termweave train --plan`."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from termweave.errors import UsageError
from termweave.support import private_files
from termweave.training import backbone_model
from termweave.training.mixture import parts
from termweave.training.run import is_finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.training.methods.base import Method
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup


@dataclass(frozen=True)
class TrainingPlan:
    """The data, sizes and settings of a planned run.

    Attributes:
        method: Name of the method.
        dataset: The DATASET argument.
        origin: Where the questions come from: judgements, clicks or the corpus itself.
        documents: Number of documents in the corpus.
        questions: Number of questions to train on, after the limits.
        trained_on: Number of documents that answer these questions.
        beside: The additional data sets, each as `DataPart.described`.
        dev: Number of held-out questions.
        searched: Number of documents in which the held-out questions are searched.
        backbone: Folder of the backbone.
        frozen: Whether the backbone is frozen, so that its hidden states can be cached.
        states_bytes: Size of the cached hidden states.
        before: Models that are trained first, such as LE-BS's scorer: method, steps and minutes of each.
        minutes: Estimate for all steps and evaluations, those of `before` included.
        memory_bytes: Estimate of the memory that the run itself takes, without `before`.
        settings: All settings.
    """

    method: str
    dataset: str
    origin: str
    documents: int
    questions: int
    trained_on: int
    beside: list[dict[str, Any]]
    dev: int
    searched: int
    backbone: str
    frozen: bool
    states_bytes: int
    before: list[dict[str, Any]]
    minutes: float
    memory_bytes: int
    settings: dict[str, Any]


def plan(method: Method, spec: str, settings: TrainingParameters, say: Callable[[str], None]) -> TrainingPlan:
    """Plan a run; settings and data that `train` would refuse at once are refused here, too.

    Raises:
        UsageError: The method has no plan.
    """
    if not method.torch:
        raise UsageError(f"{method.name} has no plan: it searches each question once and trains a minute.", "Leave --plan out.")
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as work:  # a backbone from scratch is made to measure it alone
        data = parts(spec, settings, Path(work), say)
        setup, settings = data[0].setup, data[0].settings
        model = method.build(settings, setup.backbone)
        method.refuse(settings, setup)
        settings = backbone_model.settled(model.backbone, settings, say)
        cost = method.cost(model, settings, setup)
        before = _before(method, data[0], say)
        width = 2 * int(orjson.loads((setup.backbone / "config.json").read_bytes())["hidden_size"])
    pieces = sum(_pieces(part.setup, settings.training_length) for part in data)
    frozen = settings.top_layers == 0
    looks = settings.steps // settings.every + 1
    seconds = cost.preparing + settings.steps * cost.step + looks * cost.look
    return TrainingPlan(
        method=method.name,
        dataset=spec,
        origin=setup.examples.origin,
        documents=len(setup.examples.corpus),
        questions=len(setup.train),
        trained_on=setup.trained_on,
        beside=[part.described() for part in data[1:]],
        dev=len(setup.dev),
        searched=len(setup.places),
        backbone=settings.backbone if settings.from_scratch else str(setup.backbone),
        frozen=frozen,
        states_bytes=round(2 * width * pieces) if frozen else 0,
        before=before,
        minutes=seconds / 60 + sum(each["minutes"] for each in before),
        memory_bytes=cost.memory_bytes,
        settings=asdict(settings),
    )


def _before(method: Method, part: DataPart, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Plan the run that a method needs first; []: the method needs no other run, or the cache has the model of that run."""
    earlier = method.before(part)
    if earlier is None:
        return []
    first, settings, folder = earlier
    if is_finished(folder):
        return []
    planned = plan(first, part.name, settings, say)
    return [{"method": first.name, "steps": planned.settings["steps"], "minutes": planned.minutes}]


def _pieces(setup: RunSetup, length: int) -> float:
    """Estimate the total number of word-pieces in all texts that are encoded, from a sample."""
    texts = setup.texts + setup.train.questions + setup.dev.questions
    sample = setup.tokenizer.encode(texts[:: max(1, len(texts) // 500)], length)
    return float(np.mean([len(pieces.ids) for pieces in sample])) * len(texts)
