"""A running build: its progress bar, and how Ctrl-C and SIGTERM stop it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from termweave.cli.common.output import Output
    from termweave.indexer.preparation.corpus_pass import BuildProgress

T = TypeVar("T")


def watched(run: Callable[[BuildProgress], T], out: Output, nouns: tuple[str, str]) -> T:
    """Run a phase of a build or an update with a progress bar.

    A build that is stopped prints how many documents the engine has acknowledged.

    Args:
        run: The phase.
        out: Where messages are printed.
        nouns: What the build counts, singular and plural: ("document", "documents").

    Raises:
        Exit: The build was stopped, with status 130 by Ctrl-C or 143 by SIGTERM.
    """
    from termweave.indexer.pipeline.pipeline import SENDING, STOPPING
    from termweave.support.messages import counted

    terminated = Event()
    stopping = False
    acknowledged = ""

    def show(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        nonlocal stopping, acknowledged
        if stage == STOPPING and not stopping:
            stopping = True  # even without a bar the user sees that the first Ctrl-C was understood
            again = "A second SIGTERM" if terminated.is_set() else "Pressing Ctrl-C again"
            out.say(f"Waiting for the requests that are under way. {again} stops at once.")
        if stage in {SENDING, STOPPING}:
            acknowledged = f"{done:,} of {counted(total or 0, *nouns)}"
        bar(done, total, stage, detail)

    try:
        with terminable(terminated), out.progress("Reading") as bar:
            return run(show)
    except KeyboardInterrupt:
        remark = (
            f"The engine has acknowledged {acknowledged}. Run the same command to continue from there."
            if acknowledged
            else "Nothing was sent. The same command starts again."
        )
        out.say(f"Stopped. {remark}")
        raise click.exceptions.Exit(143 if terminated.is_set() else 130) from None


@contextmanager
def terminable(terminated: Event) -> Iterator[None]:
    """Let SIGTERM stop a command as Ctrl-C does, and set `terminated`."""
    if current_thread() is not main_thread():  # only the main thread may set handlers
        yield
        return

    def end(*_: object) -> None:
        terminated.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
