"""`termweave train --help`, which lists the training methods, and `termweave train METHOD --help`, which describes one."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from termweave.cli.options.option_groups import GroupedCommand
from termweave.declared_settings import settings_of, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.declared_settings import DeclaredSetting
    from termweave.training.methods.base import Method


class TrainCommand(GroupedCommand):
    """A command whose help lists the training methods; beside a METHOD it describes that one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the METHOD: --help is carried out before click gives arguments their values."""
        if not ctx.resilient_parsing:
            ctx.meta[__name__] = self.make_parser(ctx).parse_args(args=list(args))[0].get("method")
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The help of the command, or of the method that the user names beside --help."""
        from termweave.training.methods import base

        name = ctx.meta.get(__name__)
        return _described(base.get(name)) if isinstance(name, str) else super().get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the methods before the options."""
        from termweave.training.methods import base

        with formatter.section("Methods (termweave train METHOD --help: paper, equations, parameters)"):
            formatter.write_dl([(name, base.get(name).title) for name in base.names()])
        super().format_options(ctx, formatter)


def _described(method: Method) -> str:
    """A method with its paper, equations and all its parameters."""
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
