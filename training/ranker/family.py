"""Rankers: how they are built, prepared for, exported and described (`families.Family`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.encoders.kinds.ranker import FEATURES
from termweave.encoders.onnx.export import export
from termweave.training.backbone import loading
from termweave.training.families import CardText
from termweave.training.ranker import first_stage, model_files
from termweave.training.ranker.estimate import estimate
from termweave.training.ranker.model import AnchoredRanker, load_classifier
from termweave.training.ranker.preparation import prepare
from termweave.training.ranker.trainable_ranker import TrainableRanker as Trainable

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.encoders.manifest import Manifest
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.ranker.declaration import RankerParameters
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


def build_model(settings: RankerParameters, backbone: Path) -> AnchoredRanker:
    """The classifier with an anchor as training begins with them."""
    classifier = load_classifier(backbone, settings.layers, settings.seed)
    loading.freeze(classifier.base_model, settings.top_layers)
    features = FEATURES if settings.candidates_from == "hybrid" else FEATURES[:1]  # as `first_stage` gives
    start = [_ANCHOR_SCALE, *(0.0 for _ in features[1:])]
    return AnchoredRanker(classifier, start if settings.anchor else ())


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
