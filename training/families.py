"""The contract between a training run and a family of models, and the list of families.

A *family* is a kind of model: term weights today. It is one folder of `training` with a file ``family.py`` that fulfils `Family`. Run, plan,
loop, optimiser, checkpoints, cards and the data layer know families only through this contract. A *method* (`methods`) belongs to a
family and adds what its paper adds: parameters, presets and the loss.

Adding a family: a folder, and one line in `_FAMILIES`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from termweave.encoders.manifest import Manifest
    from termweave.training.data.sampler import TrainingInputs
    from termweave.training.dev_measure import DevelopmentSet
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.setup import RunSetup
    from termweave.training.trainer.trainable_model import TrainableModel

#: Where each family is. The name is what a method gives as its `family`.
_FAMILIES = {
    "dense": "termweave.training.dense.family",
    "ranker": "termweave.training.ranker.family",
    "term_weights": "termweave.training.term_weights.family",
}


@dataclass(frozen=True)
class RunEstimate:
    """The estimated time and memory of a run on this machine.

    Attributes:
        minutes: Minutes of all steps and evaluations, if training does not stop earlier.
        memory_bytes: Bytes of parameters, gradients, optimiser and activations.
    """

    minutes: float
    memory_bytes: int


@dataclass(frozen=True)
class CardText:
    """What a model card says of the outputs of a family.

    Attributes:
        title: What the model gives, as the subject of a sentence: "Term weights and a dense vector".
        lines: Further facts, one for each point of a list.
        export: What the export's parity figures say, as a sentence without its full stop.
        measured: How the development questions were ranked.
        unrounded: What the second figure of the development questions was computed with; "" where there is no second one.
    """

    title: str
    lines: tuple[str, ...]
    export: str
    measured: str = "exact sparse dot product, impacts as an index stores them"
    unrounded: str = "float impacts"


class Family(Protocol):
    """A kind of model that can be trained: the names that the module ``family.py`` of its folder has."""

    #: The kind of the manifests of its model folders.
    KIND: str
    #: Makes the trained part of a model: ``(method, model, inputs, settings) -> TrainableModel``.
    Trainable: type[TrainableModel]

    def check(self, settings: Any, setup: RunSetup) -> None:
        """Refuse what the run would refuse, apart from what `build_model` refuses; used by ``--plan``."""
        ...

    def estimate(self, model: Any, settings: Any, setup: RunSetup) -> RunEstimate:
        """Estimate what the run will take, for ``--plan``."""
        ...

    def build_model(self, settings: Any, backbone: Path) -> Any:
        """Build the torch module as training begins with it; parameters that are not trained are frozen.

        Its attribute `backbone` is the transformers model (`backbone.loading.load`).
        """
        ...

    def prepare(
        self, method: TrainingMethod, part: DataPart, model: Any, say: Callable[[str], None]
    ) -> tuple[TrainingInputs, DevelopmentSet]:
        """Return what batches of a data set are drawn from, and its held-out questions."""
        ...

    def save(self, model: Any, folder: Path, contents: FolderContents) -> None:
        """Write weights and manifest; the tokeniser and the statistics are in the folder already."""
        ...

    def export(self, folder: Path) -> Any:
        """Write the ONNX graphs of a saved folder and return their parity; raise `ModelError` where they differ."""
        ...

    def card_text(self, manifest: Manifest) -> CardText:
        """Return what the model card says of the outputs."""
        ...


def get(name: str) -> Family:
    """Return a family by name."""
    return cast("Family", import_module(_FAMILIES[name]))


def of_kind(kind: str) -> Family:
    """The family that writes model folders of this kind.

    Raises:
        KeyError: There is none.
    """
    for name in _FAMILIES:
        if kind == (family := get(name)).KIND:
            return family
    raise KeyError(kind)
