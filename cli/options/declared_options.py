"""Options of the command line that are made of declared settings (`termweave.declared_settings`)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from termweave.cli.options.option_groups import option_group
from termweave.declared_settings import settings_of, written
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from termweave.declared_settings import DeclaredSetting

_TYPES = {"int": "integer", "float": "number"}


class DeclaredValue(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.3
    """The value of a declared setting: its text is checked as a value from Python is, with the same messages."""

    def __init__(self, setting: DeclaredSetting) -> None:
        self.name = _TYPES.get(setting.type_name, "text")
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the text of an option.

        Raises:
            UsageError: The setting does not take it.
        """
        del param, ctx
        return _named(self._setting, self._setting.parse, value)


def click_options(
    record: type[Any], argument: str, names: Collection[str] | None = None, helps: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with an option for each setting of a record, under its heading.

    Args:
        record: The dataclass that declares the settings.
        argument: The argument of the command that gets the options that were given: name of the setting -> value.
        names: The settings that become options; None: all.
        helps: Setting -> another help than the declared one, with its default.
    """
    chosen = {name: setting for name, setting in settings_of(record).items() if names is None or name in names}
    headings: dict[str, list[Callable[..., Any]]] = {}
    for name, setting in chosen.items():
        headings.setdefault(setting.heading or "Options", []).append(
            _click_option(f"{argument}_{name}", setting, (helps or {}).get(name))
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            source = click.get_current_context().get_parameter_source
            given = {name for name in chosen if source(f"{argument}_{name}") == ParameterSource.COMMANDLINE}
            values = {name: kwargs.pop(f"{argument}_{name}") for name in chosen}
            return function(*args, **{argument: {name: value for name, value in values.items() if name in given}}, **kwargs)

        decorated: Callable[..., Any] = wrapped
        for heading, options in reversed(headings.items()):
            decorated = option_group(heading, *options)(decorated)
        return decorated

    return decorate


def _click_option(argument: str, declared: DeclaredSetting, own_help: str | None) -> Callable[..., Any]:
    setting, switch = declared.setting, declared.type_name == "bool"
    flag = setting.flag or declared.flag
    if switch and declared.default:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    default = setting.default_text
    if default is None and not switch and declared.default not in (None, ()):
        default = written(declared.default)
    text = own_help or (f"{setting.help}  [default: {default}]" if default else setting.help)
    if switch:
        return click.option(flag, argument, is_flag=True, default=None, help=text)
    if setting.repeatable:
        return click.option(flag, argument, multiple=True, metavar=setting.metavar, callback=_checked(declared), help=text)
    metavar = setting.metavar or (f"[{'|'.join(declared.choices)}]" if declared.choices else None)
    return click.option(flag, argument, type=DeclaredValue(declared), metavar=metavar, help=text)


def _checked(setting: DeclaredSetting) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], Any]:
    """The callback of an option that may be repeated."""
    return lambda _context, _option, values: _named(setting, setting.check, values) if values else None


def _named(setting: DeclaredSetting, read: Callable[[Any], Any], value: Any) -> Any:
    """Read a value; an error names the option, too."""
    try:
        return read(value)
    except UsageError as error:
        error.hint = f"Option {setting.flag}: {error.hint}"
        raise
