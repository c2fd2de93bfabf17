"""Tools to declare options of commands: headings in `--help`, numbers within bounds, and options made from `termweave.declared_settings`."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from termweave.declared_settings import DeclaredSetting, settings_of, written
from termweave.errors import UsageError

#: Settings of every command: what click takes as `context_settings`.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

#: Headings of the options that nearly every verb has; they are printed last, in this order.
OUTPUT, CONNECTION = "Output", "Connection"

#: Options of which several would mean something (sort by year, then by price). With others a later one replaces an earlier one, as usual.
ONCE = ("--sort", "--mode", "--rerank")
#: Paths that options take: a file that is written, one that is read, and a folder.
NEW_FILE, FILE = (click.Path(exists=exists, dir_okay=False, path_type=Path) for exists in (False, True))
FOLDER = click.Path(file_okay=False, path_type=Path)

#: Names of the types of declared settings in help.
_TYPES = {"int": "integer", "float": "number"}
#: What begins with a dash and is no option: the next character is no letter, or a blank follows.
_TEXT = re.compile(r"-(?:[^-A-Za-z]|.*\s)", re.DOTALL)
#: The largest whole number that an engine takes.
_LARGEST = 2**31 - 1


class GroupedCommand(click.Command):
    """A command whose help lists options under the headings that `option_group` gave them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, and accept a text such as "-5 degrees", which is no option although it begins with a dash.

        An option of `ONCE` may not be given twice: click alone would silently use the last value.
        """
        if args and not ctx.resilient_parsing:
            args = self._texts_last(args)
            try:
                _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            except click.NoSuchOption as error:
                if error.option_name.startswith("--"):
                    raise
                advice = "A text or an id that begins with '-' stands behind '--', after all options."
                raise click.NoSuchOption(error.option_name, f"{error.message} {advice}", ctx=ctx) from None
            counts = Counter(each.opts[0] for each in order if isinstance(each, click.Option) and not each.multiple)
            if twice := [name for name in ONCE if counts[name] > 1]:
                raise click.UsageError(f"{twice[0]} is given twice, and takes one value: leave one out.")
        return super().parse_args(ctx, args)

    def _texts_last(self, args: list[str]) -> list[str]:
        """Return the arguments; if a text among them begins with a dash, all texts are moved behind the options and "--"."""
        declared = [each for each in self.params if isinstance(each, click.Option)]
        takes_value = {name: not (each.is_flag or each.count) for each in declared for name in (*each.opts, *each.secondary_opts)}
        options, texts, dashes, rest = list[str](), list[str](), False, iter(args)
        for arg in rest:
            text = _TEXT.match(arg) is not None and arg.split()[0].partition("=")[0] not in takes_value
            if arg == "--":
                texts += rest
            elif text or arg == "-" or not arg.startswith("-"):
                texts.append(arg)
                dashes |= text
            else:
                options += [arg, *islice(rest, takes_value.get(arg, False))]
        return [*options, "--", *texts] if dashes else args

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options into the help: first the options without a heading, then a section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):  # some versions of click describe arguments, too
                sections.setdefault(heading_of(param), []).append(record)
        for heading in sorted(sections, key=lambda each: {OUTPUT: 1, CONNECTION: 2}.get(each, 0)):
            if sections[heading]:
                with formatter.section(heading):
                    formatter.write_dl(sections[heading])


def heading_of(param: click.Option) -> str:
    """The heading that `option_group` gave an option; "Options" if it gave none."""
    return OUTPUT if "--help" in param.opts else str(vars(param).get("heading", "Options"))


def option(names: str, about: str, metavar: str | None = None, **attributes: Any) -> Callable[..., Any]:
    """Declare an option as `click.option` does.

    Args:
        names: Names separated by blanks: an optional short name, the name of the option, and optionally that of the function's argument,
            as in ``-n --lines count``.
        about: Help text of the option.
        metavar: Placeholder of the value in the help; None: that of click.
        attributes: Further arguments of `click.option`.
    """
    return click.option(*names.split(), help=about, metavar=metavar, **attributes)


def flag(names: str, about: str) -> Callable[..., Any]:
    """Declare an option that takes no value and is True when given; arguments as in `option`."""
    return option(names, about, is_flag=True)


def option_group(heading: str, *options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with options that `--help` lists under one heading.

    Groups are printed in the order of the decorators, options in the order of the arguments::

        @verb("search", connects=True)
        @click.option("-k", ...)                                 # under "Options", which comes first
        @option_group("Ranking", click.option("--mode", ...), click.option("--rerank", ...))
        def command(...): ...

    Args:
        heading: Title of the section.
        options: Decorators made by `click.option`, or shared ones that add several options.

    Returns:
        The decorator of the command.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        earlier = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for param in vars(function)["__click_params__"][earlier:]:
            vars(param).setdefault("heading", heading)
        return function

    return decorate


class IntRange(click.IntRange):
    """Type of an option: a whole number within bounds. By its name click calls 1.5 "not a valid integer"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert a value, and refuse numbers above 32 bits, which the server (Java) or orjson would refuse late or not at all."""
        number: int = super().convert(value, param, ctx)
        if number > _LARGEST:
            self.fail(f"{number} is larger than {_LARGEST}.", param, ctx)
        return number


class FloatRange(click.FloatRange):
    """Type of an option: a number within bounds, neither NaN nor infinity."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert a value, and refuse NaN and infinity, which checks of bounds let pass (every comparison with NaN is false)."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class DeclaredValue(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.3
    """Type of an option made from a declared setting: a text is checked like a value given in Python, with the same messages."""

    def __init__(self, setting: DeclaredSetting) -> None:
        self.name = _TYPES.get(setting.type_name, "text")
        self._setting = setting

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Any:
        """Convert the text of an option.

        Raises:
            UsageError: The setting does not allow this value.
        """
        return _value_of(self._setting, self._setting.parse, value)


def click_options(
    record: type[Any], argument: str, names: Collection[str] | None = None, helps: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a command with an option for each setting that a record declares, under the setting's heading.

    Args:
        record: The dataclass that declares the settings.
        argument: Name of the command's argument that gets the settings typed on the command line: name of the setting -> value.
        names: Names of the settings that become options; None: all settings do.
        helps: Name of a setting -> help text, with the default value, to show in place of the declared help.
    """
    chosen = {name: setting for name, setting in settings_of(record).items() if names is None or name in names}
    headings: dict[str, list[Callable[..., Any]]] = {}
    for name, setting in chosen.items():
        option = _click_option(f"{argument}_{name}", setting, (helps or {}).get(name))
        headings.setdefault(setting.heading or "Options", []).append(option)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            source = click.get_current_context().get_parameter_source
            typed = {name for name in chosen if source(f"{argument}_{name}") == ParameterSource.COMMANDLINE}
            values = {name: kwargs.pop(f"{argument}_{name}") for name in chosen}
            return function(*args, **{argument: {name: values[name] for name in chosen if name in typed}}, **kwargs)

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

        def check(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Any:
            return _value_of(declared, declared.check, values) if values else None

        return click.option(flag, argument, multiple=True, metavar=setting.metavar, callback=check, help=text)
    metavar = setting.metavar or (f"[{'|'.join(declared.choices)}]" if declared.choices else None)
    return click.option(flag, argument, type=DeclaredValue(declared), metavar=metavar, help=text)


def _value_of(setting: DeclaredSetting, read: Callable[[Any], Any], value: Any) -> Any:
    """Convert a value by `read`; the hint of an error also names the option."""
    try:
        return read(value)
    except UsageError as error:
        error.hint = f"Option {setting.flag}: {error.hint}"
        raise
