"""Models of dense vectors: how they are built, prepared for, exported and described (`families.Family`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.kinds.sentence_modules import read_modules
from termweave.encoders.onnx.export import export
from termweave.errors import UsageError
from termweave.training.backbone import loading
from termweave.training.backbone.reading import problem_of
from termweave.training.dense.estimate import estimate
from termweave.training.dense.model import POOLING, Towers, reinitialise
from termweave.training.dense.model_files import save
from termweave.training.dense.preparation import prepare, reading_of
from termweave.training.dense.trainable_towers import TrainableTowers as Trainable
from termweave.training.families import CardText
from termweave.training.ranker import first_stage, teacher

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.encoders.manifest import Manifest
    from termweave.training.dense.declaration import DenseParameters
    from termweave.training.setup import RunSetup

__all__ = ["KIND", "Trainable", "build_model", "card_text", "check", "estimate", "export", "prepare", "save"]

#: The kind of the manifests of its model folders.
KIND = "dense"


def check(settings: DenseParameters, setup: RunSetup) -> None:
    """Refuse a file of candidates that is not there, and a ranker that cannot teach."""
    del setup
    teacher.check(settings.teacher)
    first_stage.check(settings.candidates_from, "model")


def build_model(settings: DenseParameters, backbone: Path) -> Towers:
    """The towers as training begins with them.

    Raises:
        UsageError: The backbone's folder has modules that are not trained.
    """
    manifest, reading = reading_of(backbone)
    left_out = bool(reading.prompts) and not reading.include_prompt
    if problem := problem_of(manifest.pooling, POOLING, bool(reading.layers), left_out):
        raise UsageError(
            f"The backbone {backbone.name} was trained with {problem}, which termweave does not train.",
            f"Name a backbone without dense layers, pooled by one of {', '.join(POOLING)}.",
        )
    transformer = loading.load(backbone, settings)
    loading.attend_by_sdpa(transformer)
    reinitialise(transformer, settings.reinitialise, settings.seed)
    unit = settings.vectors != "given" or read_modules(backbone).normalised
    pooling = "mean" if settings.vectors == "mean" else manifest.pooling
    return Towers(transformer, pooling=pooling, towers=settings.towers, unit=unit)


def card_text(manifest: Manifest) -> CardText:
    """Text for the card: the vectors, the encoders, and how close the exported graph is to the model."""
    parity = manifest.quantisation["parity"]
    encoders = "one encoder for documents, one for queries" if manifest.settings.get("query_folder") else "one encoder"
    return CardText(
        "A dense vector",
        (f"vectors of {manifest.dimension} numbers, {manifest.pooling} pooling, compared by cosine; {encoders}",),
        f"cosine of the vectors {parity['int8_cosine_mean']:.4f} on average, {parity['int8_cosine_min']:.4f} at least",
        measured="exact inner products, vectors as an index stores them",
        unrounded="float vectors",
    )
