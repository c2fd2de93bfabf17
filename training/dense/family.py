"""Dense vectors as a family: what a training run asks of them (`families.Family`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from termweave.errors import UsageError
from termweave.training.families import CardText, PreparedData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.training.dense.declaration import DenseParameters
    from termweave.training.dense.dense_objective import DenseObjective
    from termweave.training.dense.evaluation import DenseDevelopment
    from termweave.training.dense.inputs import DenseInputs
    from termweave.training.dense.model import Towers
    from termweave.training.dev_measure import DevelopmentSet
    from termweave.training.families import RunEstimate
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.setup import RunSetup


class DenseVectors:
    """The family of dense encoders; modules that need torch are imported where they are used."""

    kind = "dense"

    def check(self, settings: DenseParameters, setup: RunSetup) -> None:
        """Refuse a file of candidates that is not there, and a ranker that cannot teach."""
        del setup
        from pathlib import Path  # noqa: PLC0415

        from termweave.training.ranker import teacher  # noqa: PLC0415 - compiled libraries

        teacher.check(settings.teacher)
        ranking = settings.candidates_from
        if ranking not in ("bm25", "model") and not ranking.startswith("index:") and not Path(ranking).is_file():
            raise UsageError(f"There is no run file {ranking}.", "Set candidates_from to bm25, model, index:NAME, or a TREC run.")

    def estimate(self, model: Towers, settings: DenseParameters, setup: RunSetup) -> RunEstimate:
        """Minutes and memory, from a few real texts."""
        from termweave.training.dense import estimate  # noqa: PLC0415 - torch

        return estimate.estimate(model, settings, setup)

    def build_model(self, settings: DenseParameters, backbone: Path) -> Towers:
        """The towers as training begins with them.

        Raises:
            UsageError: The backbone's folder has modules that are not trained.
        """
        from termweave.encoders.kinds.sentence_modules import read_modules  # noqa: PLC0415
        from termweave.training.backbone import loading  # noqa: PLC0415 - torch
        from termweave.training.dense.model import POOLING, Towers, reinitialise  # noqa: PLC0415 - torch
        from termweave.training.dense.preparation import reading_of  # noqa: PLC0415

        manifest, reading = reading_of(backbone)
        if reading.layers or manifest.pooling not in POOLING or (reading.prompts and not reading.include_prompt):
            raise UsageError(
                f"The backbone {backbone.name} has modules that termweave does not train: {len(reading.layers)} dense layers, pooling "
                f"{manifest.pooling}.",
                f"Name a backbone without dense layers, pooled by one of {', '.join(POOLING)}.",
            )
        transformer = loading.load(backbone, settings)
        if hasattr(transformer, "set_attn_implementation"):
            transformer.set_attn_implementation("sdpa")  # faster in training than what exports best
        reinitialise(transformer, settings.reinitialise, settings.seed)
        unit = settings.vectors == "unit" or read_modules(backbone).normalised
        return Towers(transformer, pooling=manifest.pooling, towers=settings.towers, unit=unit)

    def prepare(self, method: TrainingMethod, part: DataPart, model: Towers, say: Callable[[str], None]) -> PreparedData:
        """Token ids, hard negatives, the method's targets, and the held-out questions."""
        from termweave.training.dense import preparation  # noqa: PLC0415 - torch

        return preparation.prepare(method, part, model, say)

    def objective(
        self, method: TrainingMethod, model: Towers, inputs: Sequence[DenseInputs], settings: DenseParameters
    ) -> DenseObjective:
        """The towers that are trained, and the method's loss."""
        from termweave.training.dense.dense_objective import DenseObjective  # noqa: PLC0415 - torch

        return DenseObjective(method, model, inputs, settings)

    def evaluate(self, model: Towers, development: DevelopmentSet) -> NDArray[np.float64]:
        """The measure of each held-out question by exact search, with vectors in half precision."""
        return cast("DenseDevelopment", development).figures(model)[0]

    def evaluate_unrounded(self, model: Towers, development: DevelopmentSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`evaluate`, and the same with float32."""
        stored, unrounded = cast("DenseDevelopment", development).figures(model, unrounded=True)
        return stored, unrounded

    def save(self, model: Towers, folder: Path, contents: FolderContents) -> None:
        """Write the layout of sentence-transformers and the manifest."""
        from termweave.training.dense import model_files  # noqa: PLC0415 - torch

        model_files.save(model, folder, contents)

    def export(self, folder: Path) -> Any:
        """Write the ONNX graphs of each encoder; the parity is that of the document encoder."""
        from termweave.encoders.onnx.export import export  # noqa: PLC0415 - torch
        from termweave.training.dense.model_files import QUERY  # noqa: PLC0415 - torch

        if (folder / QUERY).is_dir():
            export(folder / QUERY)
        return export(folder)

    def int8_cost(self, folder: Path, outputs: Sequence[str], development: DevelopmentSet, setup: RunSetup) -> dict[str, Any]:
        """Search the held-out questions with both graphs."""
        from termweave.training.model_folder import quantisation_check  # noqa: PLC0415 - numpy

        return quantisation_check.cost(folder, outputs, development, setup.texts, setup.statistics)

    def card_text(self, manifest: Manifest) -> CardText:
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


FAMILY = DenseVectors()
