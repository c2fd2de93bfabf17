"""The build options of `termweave index`, made from the table in `indexer.options`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from termweave.cli.options.option_groups import option_group
from termweave.indexer.option_declaration import refusal
from termweave.indexer.option_values import SWITCH
from termweave.indexer.options import CONTENT, DECLARED, DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.indexer.option_declaration import BuildOption, Flag
    from termweave.indexer.option_values import Values


#: The build options that decide how texts are encoded.
_ENCODING = ("weights", "dense", "dense_query", "passages")


class FlagValue(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.3
    """The value of one flag: its text is read as the table says, with the messages that Python users get.

    Args:
        flag: The flag.
        values: What it takes.
    """

    def __init__(self, flag: Flag, values: Values) -> None:
        self.name = {int: "integer", float: "number"}.get(values.types[-1] if values.types else str, "text")
        self._flag, self._values = flag, values

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text of a flag.

        Raises:
            UsageError: The flag does not take it.
        """
        del param, ctx
        try:
            parsed = self._values.parse(value)
        except ValueError:
            raise refusal(self._flag.argument, value, self._values, (self._flag,)) from None
        if self._values.minimum is not None and not self._values.allow(parsed):
            raise refusal(self._flag.argument, parsed, self._values, (self._flag,))
        return parsed


def build_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all flags of build options except those that describe the corpus (see `source_options`).

    The function receives their values as `flags`, for `indexer.options.from_flags`, and the names of the flags that were given as `given`.
    """
    headings: dict[str, list[Callable[..., Any]]] = {}
    flags: list[Flag] = []
    for name, option in DECLARED.items():
        if option.heading != CONTENT:
            headings.setdefault(option.heading, []).extend(_click_option(name, option, flag) for flag in option.flags)
            flags += option.flags

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        source = click.get_current_context().get_parameter_source
        given = [flag.name for flag in flags if source(_argument(flag)) == ParameterSource.COMMANDLINE]
        values = {flag.argument: kwargs.pop(_argument(flag)) for flag in flags}
        return function(*args, flags=values, given=given, **kwargs)

    decorated: Callable[..., Any] = wrapped
    for heading, options in reversed(headings.items()):
        decorated = option_group(heading, *options)(decorated)
    return decorated


def encoding_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that decide how texts are encoded; the function receives their values as `flags`, as with `build_options`."""
    chosen = [(name, DECLARED[name], flag) for name in _ENCODING for flag in DECLARED[name].flags]

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        values: dict[str, Any] = {flag.argument: None for option in DECLARED.values() for flag in option.flags}
        values |= {flag.argument: kwargs.pop(_argument(flag)) for _, _, flag in chosen}
        return function(*args, flags=values, **kwargs)

    return option_group("Models and passages", *(_click_option(name, option, flag) for name, option, flag in chosen))(wrapped)


def _argument(flag: Flag) -> str:
    """The name of click's argument. `settings` is taken: it is the connection."""
    return f"build_{flag.argument}"


def _click_option(name: str, option: BuildOption, flag: Flag) -> Callable[..., Any]:
    values = flag.values or option.values
    default = flag.default
    if default is None and values is not SWITCH and DEFAULTS[name] is not None:
        default = flag.describe(DEFAULTS[name])
    text = f"{flag.help}  [default: {default}]" if default else flag.help
    if values is SWITCH:
        return click.option(flag.name, _argument(flag), is_flag=True, default=None, help=text)
    return click.option(flag.name, _argument(flag), type=FlagValue(flag, values), metavar=flag.metavar, help=text)
