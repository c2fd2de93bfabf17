"""What can be trained: `TrainingMethod` declares a paper's method, `get` finds one by name.

A method is one file with a `TrainingMethod` named `METHOD` and one line in `_FILES` below (or an entry point in the group
``termweave.methods`` of another package). `termweave methods`, the help, the checks of --set and the docs all read the declaration.
Nothing here imports torch.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.errors import UsageError
from termweave.training.families import Fit, TrainingContext, single_fit
from termweave.training.methods.parameter_declaration import ParameterGroup, TrainingParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

#: Where each method that comes with termweave is declared.
_FILES = {
    "bert-scorer": "termweave.training.methods.bert_scorer",
    "coder": "termweave.training.methods.coder",
    "dtr": "termweave.training.methods.dtr",
    "fectek": "termweave.training.methods.fectek",
    "le-bs": "termweave.training.methods.le_bs",
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


def _no_extras(_model: Any, _settings: Mapping[str, Any]) -> dict[str, nn.Module | nn.Parameter]:
    return {}


@dataclass(frozen=True, kw_only=True)
class TrainingMethod:
    """One way to train: the declaration of a paper's method.

    Attributes:
        name: As in ``termweave train NAME``.
        title: One line.
        source: The paper.
        equations: What is computed, in the paper's numbers.
        note: What to know before choosing the method; a short paragraph.
        family: The kind of model that is trained (`families`).
        parameters: The method's own parameters.
        groups: Parameters that it shares with other methods.
        presets: Named settings beside `DEFAULT`, such as "paper".
        loss: ``(objective, batch) -> parts``: the named parts of a batch's loss, which are summed; `objective` is the family's
            (`Family.objective`).
        extras: ``(model, settings) -> name -> module``: what only training needs and is trained too.
        fits: The fits of a run, one after the other.
        check: Raises `UsageError` for values that do not go together.
        defaults: Defaults that follow from what was given, name -> value.
        trains_first: ``(name of the data set, setup, settings) -> (method, settings, folder)`` of a model that is trained and kept before,
            if the settings need one; None: none. It refuses a model that was named instead and does not fit.
        fitted: The settings with those filled in that depend on whether questions are made of the corpus (`made`).
    """

    name: str
    title: str
    source: str
    equations: tuple[str, ...]
    note: str
    family: str
    parameters: tuple[TrainingParameter, ...]
    groups: tuple[ParameterGroup, ...]
    presets: Mapping[str, Preset]
    loss: Callable[[Any, Any], dict[str, Tensor]]
    extras: Callable[[Any, Mapping[str, Any]], Mapping[str, nn.Module | nn.Parameter]] = _no_extras
    fits: Callable[[TrainingContext], Iterator[Fit]] = single_fit
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    defaults: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda _: {}
    trains_first: Callable[[str, Any, Mapping[str, Any]], tuple[Any, dict[str, Any], Path] | None] = lambda *_: None
    fitted: Callable[..., Mapping[str, Any]] = lambda settings, *, made: settings  # noqa: ARG005 - the name is the contract

    @property
    def method_group(self) -> ParameterGroup:
        """The method's own parameters as a group, the preset first."""
        presets = {DEFAULT: "what serves best", **{name: preset.help for name, preset in self.presets.items()}}
        choices = "; ".join(f"{name}: {text}" for name, text in presets.items())
        preset = TrainingParameter("preset", DEFAULT, f"Settings to begin with. {choices}.", tuple(presets))
        return ParameterGroup(f"Of {self.name}", (preset, *self.parameters), self.check, self.defaults)

    @property
    def every_group(self) -> tuple[ParameterGroup, ...]:
        """All groups, the method's own first."""
        return (self.method_group, *self.groups)

    @property
    def every(self) -> tuple[TrainingParameter, ...]:
        """All parameters, the method's own first."""
        return tuple(parameter for group in self.every_group for parameter in group.parameters)

    def settings(self, given: Mapping[str, object]) -> dict[str, Any]:
        """All parameters with their values.

        What was given wins over the preset, the preset over defaults that follow from other settings, these over plain defaults.

        Raises:
            UsageError: A name that is not known, or a value that is not allowed.
            ModelError: The model to start from is incomplete.
        """
        known = {parameter.name: parameter for parameter in self.every}
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise UsageError(
                    f"The method {self.name} has no parameter {name!r}.",
                    f"Did you mean {near[0]}?" if near else f"`termweave methods {self.name}` lists them.",
                )
        chosen = {**self._preset(known["preset"].parse(given.get("preset", DEFAULT))), **given}
        derived: dict[str, object] = {}
        for group in self.every_group:
            derived.update({name: value for name, value in group.defaults(chosen).items() if name in known})
        values = {**derived, **chosen}
        settings = {name: parameter.parse(values.get(name, parameter.default)) for name, parameter in known.items()}
        for group in (*self.groups, self.method_group):
            group.check(settings)
        return settings

    def changed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that must be given to get the same values again: the preset, and the values that differ from it."""
        usual = {parameter.name: parameter.default for parameter in self.every} | self._preset(settings["preset"])
        usual["preset"] = DEFAULT
        return {name: settings[name] for name in usual if settings[name] != usual[name]}

    def _preset(self, name: object) -> dict[str, Any]:
        return dict(self.presets[str(name)].settings) if name in self.presets else {}


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


def given(assignments: Sequence[str], config: Path | None) -> dict[str, object]:
    """Read the settings that a user gave: those of a TOML file, overridden by ``--set key=value``.

    Raises:
        UsageError: An assignment has no "=", or the file is no TOML or has tables.
    """
    values: dict[str, object] = {}
    if config is not None:
        try:
            values.update(tomllib.loads(config.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            raise UsageError(f"{config} cannot be read: {error}.", "Write one `key = value` a line (TOML).") from error
        if tables := [f"[{name}]" for name, value in values.items() if isinstance(value, dict)]:
            raise UsageError(
                f"{config} has the table {', '.join(tables)}.", "Settings stand without a table: one `key = value` a line."
            )
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment} has no value.", "Write --set key=value.")
        values[name.strip()] = value
    return values
