"""What every verb shares: connection and output options, and where words go (results to stdout, the rest to stderr)."""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._numbers import FloatRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console, ConsoleRenderable, RenderHook

    from termweave.corpora import Opened

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

#: Columns of a terminal from which on a bar has room for details.
_WIDE = 110


def check_together(*rules: tuple[str, bool]) -> None:
    """Refuse options that mean nothing without each other, or with each other: what to say, and whether it is so.

    Raises:
        UsageError: It is so.
    """
    for sentence, broken in rules:
        if broken:
            raise click.UsageError(f"{sentence}.")


def share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A percentage as a share, for an option's callback: "0.1%" is 0.001.

    Raises:
        BadParameter: It is none.
    """
    if value is None:
        return None
    try:
        found = float(value.removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not value.endswith("%") or not 0.0 <= found <= 1.0:
        raise click.BadParameter(f"{value!r} is no percentage; write 0.1% or 5%.", ctx, param)
    return found


@dataclass(frozen=True)
class Output:
    """Where a verb's words go.

    Attributes:
        json: Results as one JSON object on stdout.
        quiet: Nothing on stderr but errors.
        verbose: Details on stderr; tracebacks of faults in termweave itself.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    def emit(self, data: Mapping[str, Any], text: str | Callable[[], Any]) -> None:
        """Print a result: `data` as JSON, or else `text` (a string, or a function that prints or returns something to print)."""
        if self.json:
            import orjson

            options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
            click.echo(orjson.dumps(data, option=options))
            return
        shown = text() if callable(text) else text
        if isinstance(shown, str):
            if shown:
                click.echo(shown)
        elif shown is not None:
            self.console().print(shown)

    def console(self) -> Console:
        """A rich console on stdout, on which documents cannot play."""
        from rich.console import Console

        console = Console(file=sys.stdout, highlight=False, emoji=False)
        if not sys.stdout.isatty():
            console = Console(file=sys.stdout, highlight=False, emoji=False, width=200, soft_wrap=True)  # nobody can widen a pipe
        console.push_render_hook(_harmless())
        return console

    def say(self, message: str) -> None:
        """One line of what is going on."""
        if not self.quiet:
            click.echo(message, err=True)

    def detail(self, message: str) -> None:
        """A line for those who asked with --verbose."""
        if self.verbose:
            click.echo(message, err=True)

    def warn(self, message: str) -> None:
        """A line that even --quiet lets through."""
        click.secho(f"Warning: {message}", err=True, fg="yellow")

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[..., None]]:
        """A bar with rate and time left where stderr is a terminal, a silent callback elsewhere.

        Yields:
            ``update(done, total=None, stage="", detail="")``; a new stage begins a new bar.
        """
        if self.quiet or not sys.stderr.isatty():
            yield lambda done, total=None, stage="", detail="": None  # noqa: ARG005
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(file=sys.stderr)
        details = (TextColumn("{task.fields[detail]}"),) if console.width >= _WIDE else ()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            *details,
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(label, total=None, rate="", detail="")
            current = label

            def update(done: int, total: int | None = None, stage: str = "", detail: str = "") -> None:
                nonlocal task, current
                if stage and stage != current:
                    bar.remove_task(task)
                    task, current = bar.add_task(stage, total=total, completed=done, rate="", detail=""), stage
                speed = bar.tasks[0].speed
                bar.update(task, completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "", detail=detail)

            yield update


#: Control characters of a text (but tab and line feed) would recolour, rewrite or command the terminal it is shown in.
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")


def _harmless() -> RenderHook:
    """Texts without control characters, of the same length: styles lie where they lay."""
    from rich.console import RenderHook
    from rich.text import Text

    class Harmless(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            for each in renderables:
                if isinstance(each, Text):
                    each.plain = each.plain.translate(_CONTROLS)
            return renderables

    return Harmless()


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --quiet and --verbose; the function gets them as `out`."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress, no hints.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more on standard error.")
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        return function(*args, out=Output(as_json, quiet, verbose), **kwargs)

    return wrapped


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which OpenSearch and how; the function gets them as `settings`."""

    @click.option("--url", help="OpenSearch to talk to.  [default: $OPENSEARCH_URL, else the running embedded node]")
    @click.option("--user", help="User name.")
    @click.option("--password", help="Password; better in $TERMWEAVE_PASSWORD.")
    @click.option(
        "--ca-certs", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificate authorities (PEM)."
    )
    @click.option("--client-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Client certificate (PEM).")
    @click.option("--client-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its key (PEM).")
    @click.option("--insecure", is_flag=True, default=None, help="Do not verify the server's certificate.")
    @click.option("--aws-sigv4", metavar="REGION", help="Sign requests for this AWS region.")
    @click.option(
        "--timeout",
        type=FloatRange(min=0, max=86_400, min_open=True),
        help="Seconds to wait for one answer.  [default: 60]",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from termweave import settings

        names = ("url", "user", "password", "ca_certs", "client_cert", "client_key", "insecure", "aws_sigv4", "timeout")
        flags = {name: kwargs.pop(name) for name in names}
        return function(*args, settings=settings.load(**flags), **kwargs)

    return wrapped


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a corpus is read; the function gets them as `reading`, keywords of `corpora.open_source`."""

    @click.option(
        "--id-field", metavar="NAME", help="Key or column of the corpus that holds the id.  [default: _id, id, docid, doc_id]"
    )
    @click.option("--title-field", metavar="NAME", help="That of the title.  [default: title]")
    @click.option(
        "--text-field", "text_fields", multiple=True, metavar="NAME",
        help="That of the text; repeat it to join several.  [default: text, contents, body, content]",
    )  # fmt: skip
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        names = ("id_field", "title_field", "text_fields")
        return function(*args, reading={name: kwargs.pop(name) for name in names}, **kwargs)

    return wrapped


def open_source(source: str, reading: Mapping[str, Any], out: Output, *, skip_bad: bool) -> Opened:
    """What SOURCE means, and a line on how it was understood where that is not plain: columns, files passed over."""
    from termweave import corpora

    opened = corpora.open_source(source, skip_bad=skip_bad, **reading)
    for remark in opened.remarks:
        out.say(remark)
    return opened


def confirm(question: str) -> None:
    """Ask before something is deleted; "n" and Ctrl-C end the command.

    Raises:
        UsageError: Nobody is there to answer (cron, a pipe that is read to its end).
    """
    from termweave.errors import UsageError

    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            click.echo(err=True)
            raise UsageError("Nobody answered.", "Where nobody is there to ask, say --yes.") from None
        raise
