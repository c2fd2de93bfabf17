"""`termweave methods`: list the training methods with their papers, equations, parameters and defaults."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from termweave.cli.options.shared_options import verb
from termweave.declared_settings import settings_of, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.cli.common.output import Output
    from termweave.declared_settings import DeclaredSetting
    from termweave.training.methods.base import TrainingMethod

SCHEMA = "termweave.methods/1"


@verb("methods")
@click.argument("name", metavar="[METHOD]", required=False)
def command(*, name: str | None, out: Output) -> None:
    """List the methods of `termweave train`. With a METHOD, print its paper, equations and all parameters.

    \b
    Examples:
      termweave methods
      termweave methods fectek
      termweave methods bert-scorer --json
    """
    from termweave.training.methods import base

    methods = [base.get(method) for method in ([name] if name else base.names())]
    data = {"schema": SCHEMA, "methods": [as_json(method) for method in methods]}
    out.emit(
        data,
        _whole(methods[0]) if name else "\n".join([*(f"{method.name:14} {method.title}" for method in methods), "", *_needed()]),
    )


def _needed() -> list[str]:
    """What training needs and this host does not have, one line each."""
    from termweave.training.needs import missing

    return [f"Not installed: {what}. {advice}" for what, advice in missing()] or ["All that training needs is installed."]


def as_json(method: TrainingMethod) -> dict[str, object]:
    """A method with all its parameters, as JSON values."""
    return {
        "name": method.name,
        "title": method.title,
        "source": method.source,
        "equations": list(method.equations),
        "note": method.note,
        "presets": [
            {"name": name, "help": preset.help, "settings": dict(preset.settings)} for name, preset in method.presets.items()
        ],
        "parameters": [
            {
                "name": parameter.name,
                "group": parameter.heading,
                "type": parameter.type_name,
                "default": parameter.default,
                "help": parameter.setting.help,
                "choices": list(parameter.choices),
            }
            for parameter in settings_of(method.parameters).values()
        ],
    }


def _whole(method: TrainingMethod) -> str:
    """A method with all its parameters, as text."""
    equations = [f"  {equation}" for equation in method.equations]
    presets = [_preset(name, preset.help, preset.settings) for name, preset in method.presets.items()]
    groups = [
        "\n".join(["", f"{heading}:", *map(_line, parameters)])
        for heading, parameters in groupby(settings_of(method.parameters).values(), lambda each: each.heading)
    ]
    return "\n".join(
        [
            f"{method.name}: {method.title}",
            method.source,
            "",
            *equations,
            "",
            click.wrap_text(method.note, 100),
            "",
            "Presets (--set preset=NAME; a parameter that is set wins over the preset):",
            *presets,
            "",
            "Parameters (--set name=value):",
            *groups,
        ]
    )


def _preset(name: str, text: str, settings: Mapping[str, object]) -> str:
    values = " ".join(f"{setting}={written(value)}" for setting, value in settings.items())
    return click.wrap_text(f"{text}: {values}", 100, initial_indent=f"  {name:14} ", subsequent_indent=" " * 17)


def _line(parameter: DeclaredSetting) -> str:
    description = f"{parameter.setting.help}{' One of: ' + ', '.join(parameter.choices) + '.' if parameter.choices else ''}"
    initial = f"  {parameter.name:16} {written(parameter.default) or '-':12} "
    return click.wrap_text(description, 100, initial_indent=initial, subsequent_indent=" " * 32)
