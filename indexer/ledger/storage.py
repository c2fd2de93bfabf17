"""Where ledgers lie: one folder a cluster, one file a generation."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING

from termweave import locks, places
from termweave.engine import EngineResponseError
from termweave.errors import TermweaveError, UsageError
from termweave.indexer import leases
from termweave.indexer.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from termweave.engine import Engine


def folder(engine: Engine) -> Path:
    """Where the ledgers of this cluster lie."""
    try:
        cluster: str = engine.request("GET", "/")["cluster_uuid"]
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        cluster = blake2b(engine.url.encode(), digest_size=8).hexdigest()  # this role may not ask which cluster it is
    return places.state() / "ledgers" / cluster


def open_(engine: Engine, index: str) -> Ledger:
    """The ledger of a generation; a new one where there is none."""
    return Ledger(_file(engine, index))


def of(engine: Engine, name: str) -> Iterator[tuple[str, Ledger]]:
    """The generations of a name that this host has ledgers of, newest first, each with its ledger; who gets one closes it."""
    for path in sorted(folder(engine).glob(f"{name}-*.sqlite"), reverse=True):
        with Ledger(path).handed_on() as ledger:
            ours = ledger.get("name") == name  # NAME-* also finds those of NAME-OTHER
        if ours:
            yield path.stem, ledger
        else:
            ledger.close()


def _file(engine: Engine, index: str) -> Path:
    return folder(engine) / f"{index}.sqlite"


@contextmanager
def lease(engine: Engine, name: str) -> Iterator[leases.Lease]:
    """One build of a name at a time: by a lock among those who share this folder, by a lease in the cluster among hosts.

    The system gives the lock back when its holder dies, so the same host never waits for a lease of its own dead.

    Raises:
        TermweaveError: Another build holds it; the message says which.
    """
    path = folder(engine) / f"{name}.lease"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            locks.noted(path, f"process {os.getpid()}, since {time.strftime('%H:%M:%S')}"),
            leases.held(engine, name, _place(path.parent)) as held,
        ):
            yield held
    except locks.Held as other:
        raise TermweaveError(
            f"Another build of {name!r} is running here ({other.note or 'it has just begun'}).",
            "Wait until it has ended, or stop it.",
        ) from None


def _place(ledgers: Path) -> str:
    """Id of a folder of ledgers, made when it is first asked for. Two builders may be the first: the file appears whole or not."""
    path = ledgers / "place"
    if not path.exists():
        scratch = ledgers / f"place.{os.getpid()}"
        scratch.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):
            os.link(scratch, path)
        scratch.unlink()
    return path.read_text(encoding="ascii")


def existing(engine: Engine, index: str) -> Ledger:
    """The ledger of a generation that was built from this host.

    Raises:
        UsageError: It was built elsewhere, or its ledger was removed.
    """
    path = _file(engine, index)
    if not path.exists():
        raise UsageError(
            f"The ledger of {index!r} is not on this host.", "Compare with the source instead: 'termweave verify NAME SOURCE'."
        )
    return Ledger(path)


def copied(engine: Engine, index: str, target: str) -> Ledger:
    """A ledger for `target` that says what that of `index` says; an empty one where that is not on this host."""
    path = _file(engine, index)
    with open_(engine, target).handed_on() as ledger:
        if path.exists():
            ledger.take_over(path)
        return ledger


def forget(engine: Engine, index: str) -> None:
    """Remove what this host keeps of a generation."""
    for file in folder(engine).glob(f"{index}.*"):
        file.unlink(missing_ok=True)
