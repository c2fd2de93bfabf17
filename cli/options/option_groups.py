"""Commands whose `--help` lists the options under headings: what most users need first, the rest in named groups."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

#: Settings of every command: what click takes as `context_settings`.
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

#: Headings of the options that nearly every verb has; they are printed last, in this order.
OUTPUT, CONNECTION = "Output", "Connection"

#: Options of which several would mean something (sort by year, then by price). With others a later one replaces an earlier one, as usual.
ONCE = ("--sort", "--mode", "--rerank")


class GroupedCommand(click.Command):
    """A command that prints its options under the headings that `option_group` gave them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option of `ONCE` that is given twice: click alone would take the last one without a word."""
        if args and not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            given = Counter(each.opts[0] for each in order if isinstance(each, click.Option) and not each.multiple)
            if twice := [name for name in ONCE if given[name] > 1]:
                raise click.UsageError(f"{twice[0]} is given twice, and takes one value: leave one out.")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, first those without a heading, then one section for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):  # some versions of click describe arguments, too
                heading = OUTPUT if "--help" in param.opts else vars(param).get("heading", "Options")
                sections.setdefault(heading, []).append(record)
        last = [heading for heading in (OUTPUT, CONNECTION) if heading in sections]
        for heading in [*(heading for heading in sections if heading not in last), *last]:
            if sections[heading]:
                with formatter.section(heading):
                    formatter.write_dl(sections[heading])


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
        The decorator.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        earlier = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for param in vars(function)["__click_params__"][earlier:]:
            vars(param).setdefault("heading", heading)
        return function

    return decorate
