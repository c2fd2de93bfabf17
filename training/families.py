"""The contract between a training run and a family of models, and the list of families.

A *family* is a kind of model: term weights today. It is one folder of `training` with a file ``family.py`` that fulfils `Family`. Run, plan,
loop, optimiser, checkpoints, cards and the data layer know families only through this contract. A *method* (`methods`) belongs to a
family and adds what its paper adds: parameters, presets and the loss.

Adding a family: a folder, and one line in `_FAMILIES`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.training.data.sampler import TrainingInputs
    from termweave.training.dev_measure import DevelopmentSet
    from termweave.training.methods.base import TrainingMethod
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.setup import RunSetup
    from termweave.training.trainer.objective import Objective

#: Where each family's ``FAMILY`` is. The name is what a method gives as its `family`.
_FAMILIES = {
    "dense": "termweave.training.dense.family",
    "ranker": "termweave.training.ranker.family",
    "term_weights": "termweave.training.term_weights.family",
}


@dataclass(frozen=True)
class PreparedData:
    """One data set in the form that a family trains on.

    Attributes:
        inputs: What batches are drawn from; the family's own type.
        development: The held-out questions; the family's own type.
    """

    inputs: Any
    development: Any


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
    """A kind of model that can be trained."""

    #: The manifest's `kind` of the model folders that this family writes.
    kind: str

    def check(self, settings: Any, setup: RunSetup) -> None:
        """Refuse what the run would refuse, apart from what `build_model` refuses; used by ``--plan``."""
        ...

    def estimate(self, model: Any, settings: Any, setup: RunSetup) -> RunEstimate:
        """What the run will take, for ``--plan``."""
        ...

    def build_model(self, settings: Any, backbone: Path) -> Any:
        """The torch module as training begins with it; parameters that are not trained are frozen.

        Its attribute `backbone` is the transformers model (`backbone.loading.load`).
        """
        ...

    def prepare(self, method: TrainingMethod, part: DataPart, model: Any, say: Callable[[str], None]) -> PreparedData:
        """One data set as training inputs (`TrainingInputs`) and development questions (`DevelopmentSet`)."""
        ...

    def objective(self, method: TrainingMethod, model: Any, inputs: Sequence[TrainingInputs], settings: Any) -> Objective:
        """What is minimised: the trained parameters and the method's loss of a batch."""
        ...

    def evaluate(self, model: Any, development: DevelopmentSet) -> NDArray[np.float64]:
        """The development measure of each question, float64 ``(questions,)``, with outputs as an index stores them (rounded).

        Args:
            model: In training.
            development: What `prepare` made.
        """
        ...

    def evaluate_unrounded(self, model: Any, development: DevelopmentSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """`evaluate`, and the same with the floats that the model gives: texts are encoded once for both."""
        ...

    def save(self, model: Any, folder: Path, contents: FolderContents) -> None:
        """Write weights and manifest; the tokeniser and the statistics are in the folder already."""
        ...

    def export(self, folder: Path) -> Any:
        """Write the ONNX graphs of a saved folder and return their parity; raise `ModelError` where they differ."""
        ...

    def int8_cost(self, folder: Path, outputs: Sequence[str], development: DevelopmentSet, setup: RunSetup) -> dict[str, Any]:
        """What int8 costs in nDCG@10 on held-out questions: ``{"questions", "documents", OUTPUT: {"fp32", "int8", "change"}}``.

        Args:
            folder: Of the exported model.
            outputs: Of the model.
            development: What `prepare` made.
            setup: Texts and statistics.
        """
        ...

    def card_text(self, manifest: Manifest) -> CardText:
        """What the model card says of this family's outputs."""
        ...


@dataclass(frozen=True)
class Fit:
    """One fit: an objective that the loop minimises.

    Attributes:
        objective: Trained parameters and loss.
        name: Folder of the fit's checkpoints in the run's folder; "" if the run has one fit only.
        measure: Measure that stops the fit and chooses its best step, higher is better; None: the mean of `Family.evaluate`.
    """

    objective: Objective
    name: str = ""
    measure: Callable[[], float] | None = None


@dataclass(frozen=True)
class TrainingContext:
    """What a method needs to make its fits: family, model, data and settings.

    Attributes:
        family: Of the method.
        method: The method.
        model: What is trained and saved.
        inputs: Of each data set.
        settings: All settings.
        measure: The development figure of the model as it is now.
    """

    family: Family
    method: TrainingMethod
    model: Any
    inputs: Sequence[Any]
    settings: Any
    measure: Callable[[], float]

    def objective(self, inputs: Sequence[Any] | None = None, **changed: Any) -> Objective:
        """The family's objective; on other inputs where these are given, and with some settings changed."""
        return self.family.objective(self.method, self.model, inputs or self.inputs, replace(self.settings, **changed))


def single_fit(context: TrainingContext) -> Iterator[Fit]:
    """The usual way to train: one fit of the family's objective.

    A method that needs several yields one `Fit` after the other. When the generator goes on, the fit that it yielded last is done and the
    best parameters are in its objective: new hard negatives or labels can be made with them. A fit that is yielded again under its name
    takes no step: its best parameters are read from its checkpoints, and the history of the last fit is that of the run.
    """
    yield Fit(context.objective())


def get(name: str) -> Family:
    """A family by name."""
    family: Family = import_module(_FAMILIES[name]).FAMILY
    return family


def of_kind(kind: str) -> Family:
    """The family that writes model folders of this kind.

    Raises:
        KeyError: There is none.
    """
    for name in _FAMILIES:
        if (family := get(name)).kind == kind:
            return family
    raise KeyError(kind)
