"""The methods of training: `Method` is the contract of a training method, `get` finds one by name.

A method is one file with a class and one line in `_CLASSES` below (or an entry point in the group ``termweave.methods`` of another
package). It derives from the base of its kind of model, which has everything but the paper's loss: `term_weights.TermWeightMethod`,
`bi_encoder.BiEncoderMethod` or `cross_encoder.CrossEncoderMethod`. The help, the checks of --set and the docs all read the class.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import getdoc
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from termweave import plugins
from termweave.declared_settings import parse, settings_of
from termweave.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from termweave.encoders.manifest import Manifest
    from termweave.training.data.sampler import Batch, TrainingInputs
    from termweave.training.dev_measure import DevelopmentSet
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.mixture import DataPart
    from termweave.training.model_folder import FolderContents
    from termweave.training.setup import RunSetup
    from termweave.training.term_weights.inspection import Inspection
    from termweave.training.trainer.trainer import Fit, Trainer

    #: Called with lines about the run.
    Say = Callable[[str], None]
    #: Draws the training questions of a batch: int64 ``(Q,)``.
    Questions = Callable[[], NDArray[np.int64]]
    #: Name -> module or parameter.
    Parts = Mapping[str, nn.Module | nn.Parameter]

#: Where each method that comes with termweave is.
_CLASSES = {
    "bert-scorer": "bert_scorer:BertScorer",
    "coder": "coder:Coder",
    "dtr": "dtr:Dtr",
    "fectek": "fectek:Fectek",
    "le-bs": "le_bs:LeBs",
    "ltr": "ltr:Ltr",
    "sir": "sir:Sir",
}
#: The preset that every method has: what serves best.
DEFAULT = "default"


@dataclass(frozen=True)
class Preset:
    """Settings with a name.

    Attributes:
        help: What they train, one sentence.
        settings: The values that differ from the parameters' defaults.
    """

    help: str
    settings: Mapping[str, object]


@dataclass(frozen=True)
class Cost:
    """The estimated cost of a run on this machine, as busy as it is now.

    Attributes:
        step: Seconds of a step, of all fits together.
        look: Seconds of an evaluation, of all fits together.
        memory_bytes: Bytes of parameters, gradients, optimiser and activations.
        preparing: Seconds before the first step.
    """

    step: float
    look: float
    memory_bytes: int
    preparing: float = 0.0


@dataclass(frozen=True)
class CardText:
    """The sentences of a model card about the outputs of a kind of model.

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


class Method:
    """One way to train. It has no state: a run, a data set and a fit each bring their settings, which may differ.

    The help shows the docstring of the class: a line that says what it is (`title`), its equations,
    indented, and what to know before choosing it (`note`).

    Attributes:
        name: As in ``termweave train NAME``.
        source: The paper.
        parameters: The record of its parameters.
        presets: Named settings beside `DEFAULT`, such as "paper".
        kind: The kind of the manifests of its model folders.
        torch: Whether its models are of torch, and the extra ``[train]`` is needed; one that is not overrides `run` alone.
        models: The module of its kind of model, with `build`, `save`, `training_inputs`, `held_out` and `estimate`; a method without one overrides
            what calls these.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    parameters: ClassVar[type[TrainingParameters]]
    presets: ClassVar[Mapping[str, Preset]] = {}
    kind: ClassVar[str]
    torch: ClassVar[bool] = True
    models: ClassVar[Any]

    @property
    def title(self) -> str:
        """Return the first line of the class's docstring, which describes the method."""
        return str(getdoc(type(self))).partition("\n")[0]

    @property
    def equations(self) -> tuple[str, ...]:
        """Return the equations of the docstring, with the paper's numbers."""
        return tuple(line[4:] for line in str(getdoc(type(self))).splitlines() if line.startswith("    "))

    @property
    def note(self) -> str:
        """Return the docstring's advice for whoever chooses a method: a short paragraph."""
        lines = str(getdoc(type(self))).splitlines()[1:]
        return " ".join(line for line in lines if line and not line.startswith("    "))

    # -- The model -------------------------------------------------------------------------------------------------------------------

    def build(self, settings: Any, backbone: Path) -> Any:
        """Build the torch module as training begins with it; parameters that are not trained are frozen.

        The module's attribute `backbone` is the transformers model (`backbone_model.load`).
        """
        return self.models.build(settings, backbone)

    def trained(self, model: Any, settings: Any) -> Parts:
        """Return the parts of a model that a fit trains, by name; parts whose name ends in "backbone" have the learning rate `layers_rate`."""
        raise NotImplementedError

    def extras(self, model: Any, settings: Any) -> Parts:
        """Return parts that are trained with the model but that only training needs, by name; they are made anew in each fit."""
        del model, settings
        return {}

    def save(self, model: Any, folder: Path, contents: FolderContents) -> None:
        """Write weights and manifest; the tokeniser and the statistics are in the folder already."""
        self.models.save(model, folder, contents)

    @classmethod
    def card(cls, manifest: Manifest) -> CardText:
        """Return what the model card says of the outputs."""
        raise NotImplementedError

    # -- The data --------------------------------------------------------------------------------------------------------------------

    def refuse(self, settings: Any, setup: RunSetup) -> None:
        """Raise at once, also for ``--plan``, for settings and data that would fail after an hour of training, apart from what `build` refuses."""

    def before(self, part: DataPart) -> tuple[Method, Any, Path] | None:
        """Return method, settings and folder of another model that must be trained and stored first; None: no other model is needed."""
        del part
        return None

    def inputs(self, part: DataPart, model: Any, say: Say) -> TrainingInputs:
        """Return the training inputs from which batches of a data set are drawn. Called before `held_out`; both share work by `DataPart.once`."""
        inputs: TrainingInputs = self.models.training_inputs(part, model, say)
        return inputs

    def held_out(self, part: DataPart, model: Any, say: Say) -> DevelopmentSet:
        """Return the held-out questions of a data set, prepared to measure the model."""
        development: DevelopmentSet = self.models.held_out(part, model, say)
        return development

    def draw(self, inputs: Any, settings: Any, generator: np.random.Generator, questions: Questions) -> Any:
        """Draw the texts that a step reads. The order in which random numbers are drawn is part of the method: resumed runs depend on it.

        Args:
            inputs: Training inputs of the data set.
            settings: Settings of the fit.
            generator: Source of randomness of this batch alone.
            questions: Draws the training questions of the batch: int64 ``(Q,)``.
        """
        del inputs, settings, generator
        return questions()

    # -- The fit ---------------------------------------------------------------------------------------------------------------------

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute the named parts of a batch's loss, which are summed.

        Args:
            fit: Has the model, the settings, and the modules of `extras` as attributes.
            batch: The texts that `draw` drew, and the training inputs that they were drawn from.
        """
        raise NotImplementedError

    def fits(self, trainer: Trainer) -> None:
        """Fit the model: once, or several times one after the other, as the method needs."""
        trainer.fit()

    def cost(self, model: Any, settings: Any, setup: RunSetup) -> Cost:
        """Estimate from a few real texts what a run takes, for ``--plan``."""
        cost: Cost = self.models.estimate(model, settings, setup)
        return cost

    # -- The run ---------------------------------------------------------------------------------------------------------------------

    def run(self, spec: str, settings: Any, out: Path, say: Say, progress: Callable[..., None]) -> None:
        """Train on a data set, and write the model folder with its figures; only a method whose models are not of torch has this.

        Args:
            spec: The data set.
            settings: All settings.
            out: Folder of the run and of the model.
            say: Called with lines about the run.
            progress: Called with ``(done, total, stage)``.
        """
        raise NotImplementedError

    def inspect(self, folder: Path, spec: str, settings: Any, say: Say) -> Inspection | None:
        """Return sample passages of the data set as a trained model weighs them; None: the model gives nothing that a passage can show."""
        del folder, spec, settings, say
        return None

    def settings(self, changed: Mapping[str, object], reading: Mapping[str, Any] | None = None) -> Any:
        """Return the record of all parameters with their values.

        A given value wins over the preset, the preset over defaults that follow from other settings, and these over plain defaults.

        Args:
            changed: Name -> value; a text is converted to the type of the parameter.
            reading: How the corpus is read: keyword arguments of `corpora.open_source`.

        Raises:
            UsageError: A name that is not known, or a value that is not allowed.
            ModelError: The model to start from is incomplete.
        """
        declared = settings_of(self.parameters)
        for name in changed:
            if name not in declared:
                usual = f"`termweave train {self.name} --help` lists them."
                raise UsageError(f"The method {self.name} has no parameter {name!r}.", _nearest(name, declared, usual))
        chosen = {**self._preset(declared["preset"].parse(changed.get("preset", DEFAULT))), **changed}
        derived = {name: value for name, value in self.parameters.derived(chosen).items() if name in declared}
        settings = parse(self.parameters, {**derived, **chosen, "reading": dict(reading or {})})
        settings.check()
        return settings

    def changed(self, settings: TrainingParameters) -> dict[str, Any]:
        """Return the settings that must be given to get the same values again: the preset, and the values that differ from the preset."""
        usual = {name: setting.default for name, setting in settings_of(self.parameters).items()}
        usual |= {**self._preset(settings.preset), "preset": DEFAULT}
        return {name: getattr(settings, name) for name in usual if getattr(settings, name) != usual[name]}

    def _preset(self, name: object) -> Mapping[str, object]:
        return self.presets[str(name)].settings if name in self.presets else {}


def _nearest(name: str, among: Iterable[str], otherwise: str) -> str:
    """Return a hint that names what a user may have meant."""
    near = get_close_matches(name, list(among), n=1)
    return f"Did you mean {near[0]}?" if near else otherwise


def names() -> list[str]:
    """Return the names of all methods."""
    return [*_CLASSES, *plugins.names("methods")]


def get(name: str) -> Method:
    """Return a method by its name.

    Raises:
        UsageError: There is no method of this name.
    """
    if name not in names():
        raise UsageError(f"There is no method {name!r}.", _nearest(name, names(), f"Methods: {', '.join(names())}."))
    place = _CLASSES.get(name)
    method: type[Method] = resolve_name(f"{__package__}.{place}") if place else plugins.load("methods", name)
    return method()


def card_of(manifest: Manifest) -> CardText:
    """Return the card's sentences about a model by its kind alone: the training of a shipped model is told in prose."""
    return next(method for method in map(get, names()) if method.kind == manifest.kind).card(manifest)


def read_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """Read the settings that a user gave as ``--set key=value``.

    Raises:
        UsageError: An assignment has no "=".
    """
    values: dict[str, object] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment} has no value.", "Write --set key=value.")
        values[name.strip()] = value
    return values
