"""Rankers: how they are built, prepared for, exported and described (`families.Family`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds.ranker import FEATURES, PairReader, RankerSettings
from termweave.encoders.kinds.sentence_layout import has_types
from termweave.encoders.manifest import Manifest, ModelFolder
from termweave.encoders.onnx.export import export
from termweave.training.backbone import loading
from termweave.training.families import CardText
from termweave.training.ranker import estimate as pass_costs
from termweave.training.ranker import first_stage, model_files, preparation
from termweave.training.ranker.model import AnchoredRanker, load_classifier
from termweave.training.ranker.trainable_ranker import TrainableRanker as Trainable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.training.families import RunEstimate
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.ranker.declaration import RankerParameters
    from termweave.training.ranker.evaluation import RankerDevelopment
    from termweave.training.ranker.inputs import RankerInputs
    from termweave.training.setup import RunSetup

__all__ = ["KIND", "Trainable", "build_model", "card_text", "check", "estimate", "export", "prepare", "save"]

#: Factor of the first stage's score as training begins.
_ANCHOR_SCALE = 10.0
#: The kind of the manifests of its model folders.
KIND = "ranker"


def check(settings: RankerParameters, setup: RunSetup) -> None:
    """Refuse a run file that is not there."""
    del setup
    first_stage.check(settings.candidates_from)


def estimate(model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> RunEstimate:
    """Minutes and memory, from a few real pairs."""
    return pass_costs.estimate(model, settings, setup, _reader(setup, model, settings))


def build_model(settings: RankerParameters, backbone: Path) -> AnchoredRanker:
    """The classifier with an anchor as training begins with them."""
    classifier = load_classifier(backbone, settings.layers, settings.seed)
    loading.freeze(classifier.base_model, settings.top_layers)
    features = FEATURES if settings.candidates_from == "hybrid" else FEATURES[:1]  # as `first_stage` gives
    start = [_ANCHOR_SCALE, *(0.0 for _ in features[1:])]
    return AnchoredRanker(classifier, start if settings.anchor else ())


def prepare(
    method: TrainingMethod, part: DataPart, model: AnchoredRanker, say: Callable[[str], None]
) -> tuple[RankerInputs, RankerDevelopment]:
    """Candidate lists of the training and the held-out questions."""
    del method
    check(part.settings, part.setup)
    readers = [_reader(part.setup, model, part.settings, name) for name in ("training_length", "max_length")]
    return preparation.prepare(part, readers[0], readers[1], say)


def save(model: AnchoredRanker, folder: Path, contents: FolderContents) -> None:
    """Write the layout of CrossEncoder and the manifest."""
    names = FEATURES[: 0 if model.weights is None else len(model.weights)]
    model_files.save(model, names, folder, contents)


def card_text(manifest: Manifest) -> CardText:
    """Text for the card: the anchor, and how close the exported graph is to the model."""
    parity = manifest.quantisation["parity"]
    weights = manifest.anchor.get("weights", {})
    anchor = ", ".join(f"{weight:.3g} x {name}" for name, weight in weights.items())
    lines = (f"anchor: the logit plus {anchor} of the first stage",) if anchor else ()
    return CardText(
        "A score of a query with a document",
        ("cross-encoder with one logit, in the layout of sentence-transformers' CrossEncoder", *lines),
        f"rank correlation of the scores {parity['int8_rank_correlation']:.4f}",
        measured="the candidates of the first stage, reranked",
        unrounded="",
    )


def _reader(setup: RunSetup, model: Any, settings: RankerParameters, length: str = "training_length") -> PairReader:
    """What turns pairs into token ids, as the written folder will (`sentence_layout`).

    Raises:
        ModelError: The tokeniser has no template for pairs.
    """
    tokens = loading.length(model.backbone, getattr(settings, length))
    manifest = Manifest(setup.backbone.name, "ranker", ("scores",), "", tokens)
    reading = RankerSettings(types=has_types(setup.backbone))
    manifest = replace(manifest, settings=reading.as_dict())
    return PairReader(ModelFolder(setup.backbone, manifest, {}), reading)
