"""The output of a verb: results and tables go to standard output, progress and remarks to standard error."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from termweave.support.messages import escaped, printable, readable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

#: A terminal with at least this many columns shows details beside the progress bar.
_WIDE = 110
#: Seconds between two lines of progress.
_BETWEEN_LINES = 1.0


def nobody_reads() -> None:
    """Redirect standard output to the null device, because its reader has ended: a flush into the closed pipe at exit would fail."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@dataclass(frozen=True)
class Output:
    """The output of a verb.

    Attributes:
        json: Whether the result is printed as one JSON object on stdout.
        quiet: Whether nothing is printed on stderr but warnings and errors.
        verbose: Whether details are printed on stderr, and tracebacks of faults in termweave itself.
        lines: Whether progress, remarks and the result are printed on stdout, each as one line of JSON.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    lines: bool = False

    def emit(self, data: Mapping[str, Any], text: str | Callable[[], Any]) -> None:
        """Print a result: `data` if JSON is asked for, else `text`, a string or a function that prints or returns something to print.

        If the reader of a pipe has ended (`termweave evaluate ... | head`), the verb goes on: its exit status may say that a gate was missed.
        """
        try:
            self._print(data, text)
        except BrokenPipeError:
            nobody_reads()

    def _print(self, data: Mapping[str, Any], text: str | Callable[[], Any]) -> None:
        if self.json:
            import orjson

            options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | (0 if self.lines else orjson.OPT_INDENT_2)
            try:
                encoded = orjson.dumps(data, option=options)
            except orjson.JSONEncodeError:  # a path that is not UTF-8
                encoded = orjson.dumps(_readable(data), option=options)
            click.echo(escaped(encoded.decode()))
        elif isinstance(shown := text() if callable(text) else text, str):
            click.echo(printable(shown, lines=True), nl=bool(shown))
        elif shown is not None:
            self.console().print(shown)

    def console(self) -> Console:
        """Return a console of the library rich on stdout, which shows control characters and markup in texts of documents as plain text."""
        pipe = {} if sys.stdout.isatty() else {"width": 200, "soft_wrap": True}  # which has no width of its own
        return _console(file=sys.stdout, highlight=False, emoji=False, **pipe)

    def say(self, *remarks: str) -> None:
        """Print remarks, unless --quiet is given."""
        for remark in () if self.quiet else remarks:
            self._remark(remark, printable(remark))

    def detail(self, message: str) -> None:
        """Print a detail if --verbose is given."""
        if self.verbose:
            click.echo(printable(message), err=True)

    def warn(self, *warnings: str) -> None:
        """Print warnings, even if --quiet is given."""
        for warning in warnings:
            self._remark(warning, click.style(printable(f"Warning: {warning}"), fg="yellow"), warning=True)

    def _remark(self, message: str, shown: str, *, warning: bool = False) -> None:
        if self.lines:
            self.emit({"schema": "termweave.remark/1", "text": message, "warning": warning}, "")
        else:
            click.echo(shown, err=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[..., None]]:
        """Show a progress bar with rate and remaining time if stderr is a terminal.

        Yields:
            The function ``update(done, total=None, stage="", detail="")``; a new stage starts a new bar. The function does
            nothing if stderr is not a terminal.
        """
        if self.lines and not self.quiet:
            yield self._progress_lines(label)
            return
        if self.quiet or not sys.stderr.isatty():
            yield lambda done, total=None, stage="", detail="": None  # noqa: ARG005
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = _console(file=sys.stderr)
        details = (TextColumn("{task.fields[detail]}", markup=False),) if console.width >= _WIDE else ()
        stage, rate = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[rate]}")
        columns = (stage, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), *details)
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

    def _progress_lines(self, label: str) -> Callable[..., None]:
        """Return an update function for `progress` that prints lines of JSON: at most one a second, and one for each change of stage."""
        printed, current = -_BETWEEN_LINES, label

        def update(done: int, total: int | None = None, stage: str = "", detail: str = "") -> None:
            nonlocal printed, current
            now = time.monotonic()
            if now - printed >= _BETWEEN_LINES or done == total or (stage and stage != current):
                printed, current = now, stage or current
                values = {"stage": current, "done": done, "total": total, "detail": detail}
                self.emit({"schema": "termweave.progress/1", **values}, "")

        return update

    @contextmanager
    def stages(self, label: str) -> Iterator[Callable[..., None]]:
        """Show the progress of work in several stages; yields the function ``update(stage, done, total=None, detail="")``."""
        with self.progress(label) as bar:
            yield lambda stage, done, total=None, detail="": bar(done, total, stage, detail)


def _readable(data: Any) -> Any:
    """Return JSON data with all texts passed through `readable`, so that they can be encoded as UTF-8."""
    if isinstance(data, str):
        return readable(data)
    if isinstance(data, dict):
        return {_readable(key): _readable(value) for key, value in data.items()}
    return [_readable(each) for each in data] if isinstance(data, list | tuple) else data


def _console(**options: Any) -> Console:
    """Make a console of the library rich that passes all text through `printable` and interprets no markup, but keeps the colours of styles."""
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        def on_broken_pipe(self) -> None:
            """Raise BrokenPipeError as `click.echo` does, because rich itself would end the program with status 1."""
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text, lines=True), segment.style)

    return Safe(markup=False, **options)


def fitted_table(
    columns: Mapping[str, Sequence[str]], width: int, *, always: Collection[str] = (), right: Collection[str] = ()
) -> Table:
    """Make a table of as many columns as fit into a width, in the given order. The first column is always shown, its long cells on several lines.

    Args:
        columns: Heading -> the cells of the column.
        width: Characters of a line.
        always: Headings of columns that are shown even if they do not fit.
        right: Headings of columns that are aligned to the right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table

    (first, names), *others = columns.items()
    table = Table(box=SIMPLE_HEAD, padding=0)
    table.add_column(first, overflow="fold")
    left = width - 2 - max(map(cell_len, (first, *names)))
    rows = [[name] for name in names]
    for heading, cells in others:
        wide = max(map(cell_len, (heading, *cells))) + 1
        if wide > left and heading not in always:
            continue
        left -= wide
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    for row in rows:
        table.add_row(*row)
    return table
