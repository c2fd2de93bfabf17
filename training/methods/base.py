"""What can be trained: `TrainingMethod` declares a paper's method, `get` finds one by name.

A method is one file with a `TrainingMethod` named `METHOD` and one line in `_FILES` below (or an entry point in the group
``termweave.methods`` of another package). The help, the checks of --set and the docs all read the declaration.
Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.declared_settings import parse, settings_of
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.trainer.trainer import Trainer

#: Where each method that comes with termweave is declared.
_FILES = {
    "bert-scorer": "termweave.training.methods.bert_scorer",
    "coder": "termweave.training.methods.coder",
    "dtr": "termweave.training.methods.dtr",
    "fectek": "termweave.training.methods.fectek",
    "le-bs": "termweave.training.methods.le_bs",
    "ltr": "termweave.training.methods.ltr",
    "sir": "termweave.training.methods.sir",
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


@dataclass(frozen=True, kw_only=True)
class TrainingMethod:
    """One way to train: the declaration of a paper's method.

    Attributes:
        name: As in ``termweave train NAME``.
        title: One line.
        source: The paper.
        equations: What is computed, in the paper's numbers.
        note: What to know before choosing the method; a short paragraph.
        parameters: The record of its parameters; its `family` is the kind of model that is trained (`families`).
        presets: Named settings beside `DEFAULT`, such as "paper".
        loss: ``(model, batch) -> parts``: the named parts of a batch's loss, which are summed; `model` is the trained part of the model
            (`TrainableModel`): it encodes the texts of the batch and has the settings and the data.
        extras: ``(model, settings) -> name -> module``: what only training needs and is trained too.
        draw: ``(inputs, settings, generator, questions) -> the method's own batch``, of a dense method; ``questions()`` draws
            its questions, which are the batch where it is not given.
        targets: ``(context) -> targets``: what a dense method computes once before training, such as soft labels.
        train: Takes the fits of a run, one after the other; one fit where it is not given.
        trains_first: ``(name of the data set, setup, settings) -> (method, settings, folder)`` of a model that is trained and kept before,
            if the settings need one; None: none. It refuses a model that was named instead and does not fit.
        run: ``(data set, settings, folder, say, progress)``, of a method whose models are not of torch: it trains and writes the folder
            itself. None for all others.
    """

    name: str
    title: str
    source: str
    equations: tuple[str, ...]
    note: str
    parameters: type[TrainingParameters]
    presets: Mapping[str, Preset]
    loss: Callable[[Any, Any], dict[str, Tensor]]
    extras: Callable[[Any, Any], Mapping[str, nn.Module | nn.Parameter]] = lambda *_: {}
    draw: Callable[[Any, Any, Any, Any], Any] = lambda *given: given[3]()
    targets: Callable[[Any], Any] = lambda _: None
    train: Callable[[Trainer], None] = lambda trainer: trainer.fit()
    trains_first: Callable[[str, Any, Any], tuple[Any, Any, Path] | None] = lambda *_: None
    run: Callable[..., None] | None = None

    @property
    def family(self) -> str:
        """The name of the family of its models."""
        return self.parameters.family

    def settings(self, given: Mapping[str, object], reading: Mapping[str, Any] | None = None) -> Any:
        """The record of all parameters with their values.

        What was given wins over the preset, the preset over defaults that follow from other settings, these over plain defaults.

        Args:
            given: Name -> value; a text is converted to the type of the parameter.
            reading: How the corpus is read: keyword arguments of `corpora.open_source`.

        Raises:
            UsageError: A name that is not known, or a value that is not allowed.
            ModelError: The model to start from is incomplete.
        """
        declared = settings_of(self.parameters)
        for name in given:
            if name not in declared:
                near = get_close_matches(name, declared, n=1)
                raise UsageError(
                    f"The method {self.name} has no parameter {name!r}.",
                    f"Did you mean {near[0]}?" if near else f"`termweave train {self.name} --help` lists them.",
                )
        chosen = {**self._preset(declared["preset"].parse(given.get("preset", DEFAULT))), **given}
        derived = {name: value for name, value in self.parameters.derived(chosen).items() if name in declared}
        settings = parse(self.parameters, {**derived, **chosen, "reading": dict(reading or {})})
        settings.check()
        return settings

    def changed(self, settings: TrainingParameters) -> dict[str, Any]:
        """The settings that must be given to get the same values again: the preset, and the values that differ from it."""
        usual = {name: setting.default for name, setting in settings_of(self.parameters).items()}
        usual |= {**self._preset(settings.preset), "preset": DEFAULT}
        return {name: getattr(settings, name) for name in usual if getattr(settings, name) != usual[name]}

    def _preset(self, name: object) -> Mapping[str, object]:
        return self.presets[str(name)].settings if name in self.presets else {}


def names() -> list[str]:
    """The names of all methods."""
    return [*_FILES, *plugins.names("methods")]


def get(name: str) -> TrainingMethod:
    """A method by name.

    Raises:
        UsageError: There is no method of this name.
    """
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Methods: {', '.join(names())}."
        raise UsageError(f"There is no method {name!r}.", hint)
    method: TrainingMethod = import_module(_FILES[name]).METHOD if name in _FILES else plugins.load("methods", name)
    return method


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
