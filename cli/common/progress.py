"""A build while it runs: the bar, and what Ctrl-C and SIGTERM do."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.cli._options import Output
    from termweave.indexer import Built, Updated
    from termweave.indexer.survey import Progress


class Run(Protocol):
    """A build that is ready to begin."""

    def __call__(self, *, progress: Progress) -> Built | Updated:
        """Begin, and report."""


def watched(run: Run, out: Output, noun: str) -> Built | Updated:
    """Run a build under a bar. Stopped, it ends with status 130, by SIGTERM with 143, and says how many are acknowledged.

    Args:
        run: What is to be run.
        out: Where the words go.
        noun: What it counts: "document" or "passage".

    Raises:
        Exit: It was stopped.
    """
    from termweave.indexer.building import SENDING, STOPPING
    from termweave.indexer.expanding import ENCODING
    from termweave.words import counted

    terminated = Event()
    stopping = False
    acknowledged = encoded = ""

    def show(stage: str, done: int, total: int | None, detail: str = "", /) -> None:
        nonlocal stopping, acknowledged, encoded
        if stage == STOPPING and not stopping:
            stopping = True  # that the first Ctrl-C was understood is said in any case
            out.say(f"Finishing what is under way; {'a second SIGTERM' if terminated.is_set() else 'Ctrl-C'} stops at once.")
        if stage in {SENDING, STOPPING}:
            acknowledged = f"{done:,} of {counted(total or 0, noun)}"
        if stage == ENCODING and done:
            encoded = f"{done:,} of {counted(total or 0, noun)}"
        bar(done, total, stage, detail)

    try:
        with _terminable(terminated), out.progress("Reading") as bar:
            return run(progress=show)
    except KeyboardInterrupt:
        kept = f"The engine has acknowledged {acknowledged}" if acknowledged else f"Encoded are {encoded}"
        on = f"{kept}, which are kept: the same command goes on from there."
        out.say(f"Stopped. {on if acknowledged or encoded else 'Nothing was sent: the same command begins anew.'}")
        raise click.exceptions.Exit(143 if terminated.is_set() else 130) from None


@contextmanager
def _terminable(terminated: Event) -> Iterator[None]:
    """SIGTERM ends a build as Ctrl-C does; `terminated` says that it was that."""
    if current_thread() is not main_thread():  # only that one may set handlers
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
