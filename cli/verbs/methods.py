"""`termweave methods`: what can be trained, with paper, equations, parameters and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, output_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.training.methods import Method, Parameter

SCHEMA = "termweave.methods/1"


@click.command("methods", context_settings=CONTEXT, short_help="What can be trained, with parameters and defaults.")
@click.argument("name", metavar="[METHOD]", required=False)
@output_options
def command(*, name: str | None, out: Output) -> None:
    """List what `termweave train` can train; with a METHOD, its paper, equations and every parameter.

    \b
    Examples:
      termweave methods
      termweave methods fectek
      termweave methods bert-scorer --json
    """
    from termweave.training import methods

    found = [methods.get(each) for each in ([name] if name else methods.names())]
    data = {"schema": SCHEMA, "methods": [as_json(method) for method in found]}
    out.emit(data, _whole(found[0]) if name else "\n".join(f"{method.name:14} {method.title}" for method in found))


def as_json(method: Method) -> dict[str, object]:
    """One method, all parameters."""
    return {
        "name": method.name,
        "title": method.title,
        "source": method.source,
        "equations": list(method.equations),
        "note": method.note,
        "parameters": [
            {"name": each.name, "type": each.type, "default": each.default, "help": each.help, "choices": list(each.choices)}
            for each in method.every
        ],
    }


def _whole(method: Method) -> str:
    own = [_line(parameter) for parameter in method.parameters]
    common = [_line(parameter) for parameter in method.every[len(method.parameters) :]]
    equations = [f"  {equation}" for equation in method.equations]
    note = click.wrap_text(method.note, 100)
    return "\n".join(
        [
            f"{method.name}: {method.title}",
            method.source,
            "",
            *equations,
            "",
            note,
            "",
            "Parameters (--set name=value):",
            *own,
            "",
            "Of every method:",
            *common,
        ]
    )


def _line(parameter: Parameter) -> str:
    default = str(parameter.default).lower() if isinstance(parameter.default, bool) else str(parameter.default) or "-"
    what = f"{parameter.help}{' One of: ' + ', '.join(parameter.choices) + '.' if parameter.choices else ''}"
    return click.wrap_text(what, 100, initial_indent=f"  {parameter.name:16} {default:12} ", subsequent_indent=" " * 32)
