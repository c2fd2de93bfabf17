"""Files of the ledgers: one folder per cluster, one file per generation."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import Any

from termweave.catalog.lineage import check_one
from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.credentials import is_serverless
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.indexer.ledger import build_lock
from termweave.indexer.ledger.ledger import Ledger
from termweave.support import file_locks, paths, private_files

#: Cluster ids that can be used as the name of a folder.
_PLAIN = re.compile(r"[\w-]{1,100}", re.ASCII)


def folder(engine: Engine) -> Path:
    """Return the folder with the ledgers of this cluster.

    Raises:
        EngineError: The cluster does not answer, or builds are not possible on it (OpenSearch Serverless).
    """
    try:
        cluster: str = _cluster_id(engine)
    except EngineResponseError as error:
        if is_serverless(engine.addresses[0]) and error.status != HTTPStatus.FORBIDDEN:
            raise EngineError(
                "OpenSearch Serverless lacks requests that builds and verification need (GET /, _refresh, _tasks).",
                "Use a domain of Amazon OpenSearch Service or another cluster; an index that stands on Serverless can be searched.",
            ) from error
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        cluster = ",".join(sorted(engine.addresses))  # this user may not read the id
    if not _PLAIN.fullmatch(cluster):  # it comes from the server and becomes the name of a folder
        cluster = blake2b(cluster.encode(), digest_size=8).hexdigest()
    return paths.state() / "ledgers" / cluster


def _cluster_id(engine: Engine) -> str:
    """Return the id of the cluster, from the root page, or from the statistics where an Elasticsearch has no such page."""
    try:
        root: dict[str, Any] = engine.request("GET", "/")
    except EngineResponseError as error:
        if error.status != HTTPStatus.METHOD_NOT_ALLOWED or engine.product != "Elasticsearch":
            raise
        root = engine.request("GET", "/_cluster/stats", params={"filter_path": "cluster_uuid"})
    return str(root["cluster_uuid"])


def open_(engine: Engine, index: str) -> Ledger:
    """Open the ledger of a generation, or create it."""
    return Ledger(file_of(engine, index))


def open_ledgers(engine: Engine, name: str) -> Iterator[tuple[str, Ledger]]:
    """Iterate over the generations of a name that have a ledger on this host, newest first.

    Yields:
        The index and its open ledger, which the caller closes.
    """
    for path in sorted(folder(engine).glob(f"{name}-*.sqlite"), reverse=True):
        with Ledger(path).closed_on_error() as ledger:
            ours = ledger.get("name") == name  # NAME-* also matches the ledgers of NAME-OTHER
        if ours:
            yield path.stem, ledger
        else:
            ledger.close()


def file_of(engine: Engine, index: str) -> Path:
    """Return the path of the ledger of a generation."""
    check_one(index)  # the name may come from a server: it must not be a path to another folder
    return folder(engine) / f"{index}.sqlite"


@contextmanager
def lease(engine: Engine, name: str) -> Iterator[build_lock.Lease]:
    """Hold the build lock of a name, so that only one build of it runs at a time.

    A file lock excludes other processes on this host, and a lease in the cluster excludes other hosts. The system releases the file
    lock when a process dies, so this host never waits for the lease of a dead process of its own.

    Raises:
        TermweaveError: Another build is running; the message names it.
    """
    path = folder(engine) / f"{name}.lease"
    private_files.make_folder(path.parent)
    try:
        with (
            file_locks.noted(path, f"process {os.getpid()}, since {time.strftime('%H:%M:%S')}"),
            build_lock.hold_lease(engine, name, _place(path.parent)) as build_lease,
        ):
            yield build_lease
    except file_locks.Held as other:
        message = f"Another build of {name!r} is running on this host ({other.note or 'it has just begun'})."
        raise TermweaveError(message, "Wait until it has ended, or stop it.") from None


def _place(ledgers: Path) -> str:
    """Return the id of a folder of ledgers, created on first use. The file is created atomically, because two builds may be the first."""
    path = ledgers / "place"
    if not path.exists():
        scratch = ledgers / f"place.{os.getpid()}"
        scratch.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):
            os.link(scratch, path)
        scratch.unlink()
    return path.read_text(encoding="ascii")


def existing(engine: Engine, index: str) -> Ledger:
    """Open the ledger of a generation that was built on this host.

    Raises:
        UsageError: The generation was built on another host, or its ledger was removed.
    """
    path = file_of(engine, index)
    if not path.exists():
        hint = "Compare with the source instead: 'termweave verify NAME SOURCE'."
        raise UsageError(f"This host has no ledger of {index!r}, the record of what was sent.", hint)
    return Ledger(path)


def snapshot(engine: Engine, index: str, target: Path) -> Ledger:
    """Copy the ledger of `index` to the file `target`; the copy is empty if `index` has no ledger on this host."""
    path = file_of(engine, index)
    with Ledger(target).closed_on_error() as ledger:
        if path.exists():
            ledger.take_over(path)
        return ledger


def forget(engine: Engine, index: str) -> None:
    """Remove all files of a generation from this host."""
    for file in folder(engine).glob(f"{index}.*"):
        file.unlink(missing_ok=True)
