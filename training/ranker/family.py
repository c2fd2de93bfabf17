"""Rankers as a family: what a training run asks of them (`families.Family`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from termweave.training.families import CardText, PreparedData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.kinds.ranker import PairReader
    from termweave.encoders.manifest import Manifest
    from termweave.training.dev_measure import DevelopmentSet
    from termweave.training.families import RunEstimate
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.ranker.declaration import RankerParameters
    from termweave.training.ranker.evaluation import RankerDevelopment
    from termweave.training.ranker.inputs import RankerInputs
    from termweave.training.ranker.model import AnchoredRanker
    from termweave.training.ranker.ranker_objective import RankerObjective
    from termweave.training.setup import RunSetup

#: Factor of the first stage's score as training begins.
_ANCHOR_SCALE = 10.0


class Rankers:
    """The family of rankers; modules that need torch are imported where they are used."""

    kind = "ranker"

    def check(self, settings: RankerParameters, setup: RunSetup) -> None:
        """Refuse a run file that is not there."""
        del setup
        from termweave.training.ranker import first_stage  # noqa: PLC0415 - compiled libraries

        first_stage.check(settings.candidates_from)

    def estimate(self, model: AnchoredRanker, settings: RankerParameters, setup: RunSetup) -> RunEstimate:
        """Minutes and memory, from a few real pairs."""
        from termweave.training.ranker import estimate  # noqa: PLC0415 - torch

        return estimate.estimate(model, settings, setup, _reader(setup, model, settings))

    def build_model(self, settings: RankerParameters, backbone: Path) -> AnchoredRanker:
        """The classifier with an anchor as training begins with them."""
        from termweave.training.backbone import loading  # noqa: PLC0415 - torch
        from termweave.training.ranker.model import AnchoredRanker, load_classifier  # noqa: PLC0415 - torch

        classifier = load_classifier(backbone, settings.layers, settings.seed)
        loading.freeze(classifier.base_model, settings.top_layers)
        from termweave.encoders.kinds.ranker import FEATURES  # noqa: PLC0415 - numpy

        features = FEATURES if settings.candidates_from == "hybrid" else FEATURES[:1]  # as `first_stage` gives
        start = [_ANCHOR_SCALE, *(0.0 for _ in features[1:])]
        return AnchoredRanker(classifier, start if settings.anchor else ())

    def prepare(self, method: TrainingMethod, part: DataPart, model: AnchoredRanker, say: Callable[[str], None]) -> PreparedData:
        """Candidate lists of the training and the held-out questions."""
        del method
        self.check(part.settings, part.setup)
        from termweave.training.ranker import preparation  # noqa: PLC0415 - numpy

        readers = [_reader(part.setup, model, part.settings, name) for name in ("training_length", "max_length")]
        return preparation.prepare(part, readers[0], readers[1], say)

    def objective(
        self, method: TrainingMethod, model: AnchoredRanker, inputs: Sequence[RankerInputs], settings: RankerParameters
    ) -> RankerObjective:
        """The ranker that is trained, and the method's loss."""
        from termweave.training.ranker.ranker_objective import RankerObjective  # noqa: PLC0415 - torch

        return RankerObjective(method, model, inputs, settings)

    def evaluate(self, model: AnchoredRanker, development: DevelopmentSet) -> NDArray[np.float64]:
        """The measure of each held-out question, its candidates reranked."""
        return cast("RankerDevelopment", development).figures(model)

    def evaluate_unrounded(
        self, model: AnchoredRanker, development: DevelopmentSet
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`evaluate` twice: an index stores nothing of a ranker."""
        figures = self.evaluate(model, development)
        return figures, figures

    def save(self, model: AnchoredRanker, folder: Path, contents: FolderContents) -> None:
        """Write the layout of CrossEncoder and the manifest."""
        from termweave.encoders.kinds.ranker import FEATURES  # noqa: PLC0415 - numpy
        from termweave.training.ranker import model_files  # noqa: PLC0415 - torch

        names = FEATURES[: 0 if model.weights is None else len(model.weights)]
        model_files.save(model, names, folder, contents)

    def export(self, folder: Path) -> Any:
        """Write the ONNX graphs."""
        from termweave.encoders.onnx.export import export  # noqa: PLC0415 - torch

        return export(folder)

    def int8_cost(self, folder: Path, outputs: Sequence[str], development: DevelopmentSet, setup: RunSetup) -> dict[str, Any]:
        """Rerank the held-out questions with both graphs."""
        from termweave.training.ranker import evaluation  # noqa: PLC0415 - numpy

        del outputs, setup
        return evaluation.int8_cost(folder, cast("RankerDevelopment", development))

    def card_text(self, manifest: Manifest) -> CardText:
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
    from termweave.encoders.kinds.ranker import PairReader, RankerSettings  # noqa: PLC0415 - numpy
    from termweave.encoders.kinds.sentence_layout import has_types  # noqa: PLC0415
    from termweave.encoders.manifest import Manifest, ModelFolder  # noqa: PLC0415
    from termweave.training.backbone import loading  # noqa: PLC0415

    tokens = loading.length(model.backbone, getattr(settings, length))
    manifest = Manifest(setup.backbone.name, "ranker", ("scores",), "", tokens)
    reading = RankerSettings(types=has_types(setup.backbone))
    manifest = replace(manifest, settings=reading.as_dict())
    return PairReader(ModelFolder(setup.backbone, manifest, {}), reading)


FAMILY = Rankers()
