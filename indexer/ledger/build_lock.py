"""The lease of a name in the cluster: one build at a time, whatever host it runs on.

A builder keeps one document in ``termweave-leases`` and renews it. Who finds a document of another host looks whether it is
renewed, not what time it says: clocks of two hosts differ, and may be set. So an expired lease is taken only after
having been watched, and by compare-and-set: of two who watched, one gets it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.connection import quote
from termweave.errors import EngineError, TermweaveError
from termweave.search.lineage import exists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.engine import Engine

INDEX = "termweave-leases"
#: Seconds between renewals, and without one after which the holder counts as dead.
BEAT, EXPIRY = 10.0, 30.0
#: Seconds that one request about a lease may take: it must not hold up the end of a build.
_TIMEOUT = 5.0


class Lease:
    """A lease that is held, or being taken.

    Args:
        engine: The cluster.
        name: What is built.
        place: Id of the folder of ledgers. Who has the lock in that folder knows that no other builder on this host lives that uses it.
    """

    def __init__(self, engine: Engine, name: str, place: str) -> None:
        self._engine = engine
        self._path = f"/{INDEX}/_doc/{quote(name)}"
        self._name = name
        self._place = place
        self._host = socket.gethostname()
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._token = f"{place}-{os.getpid()}-{time.monotonic_ns()}"
        self._version: tuple[int, int] | None = None
        self._lost = False

    def check(self) -> None:
        """Look at what the renewals found.

        Raises:
            EngineError: Somebody else has the lease now.
        """
        if self._lost:
            raise EngineError(
                f"Another build of {self._name!r} has taken over: this one was not heard of for {EXPIRY:.0f} s.",
                "Leave it to the other one, or run this command again when that has ended: it resumes.",
            )

    def take(self) -> None:
        """Take the lease.

        Raises:
            TermweaveError: Another host holds it; the message says which.
        """
        self._prepare()
        while True:
            if self._write(None):
                return
            found = self._read()
            if found is None:  # given back in this moment
                continue
            held, version = found
            ours = (held["place"], held["host"]) == (self._place, self._host)
            if not ours and not self._expired(held, version):
                raise TermweaveError(
                    f"Another build of {self._name!r} is running on {held['host']} "
                    f"(process {held['process']}, since {held['since']}).",
                    f"Wait until it has ended, or stop it. Where it was killed, its lease ends by itself after {EXPIRY:.0f} s.",
                )
            if self._write(version):
                return

    def renew(self) -> None:
        """Say that we live; a failure is left to the next time."""
        with suppress(EngineError):
            if self._write(self._version):
                return
            # Refused for its version: another's document, or ours, written by a request whose answer was lost.
            found = self._read()
            if found is not None and found[0]["token"] == self._token:
                self._version = found[1]
            elif found is not None or not self._write(None):  # gone is not taken: then it is made again
                self._lost = True

    def give_back(self) -> None:
        """End it; where the engine does not answer, it ends by itself."""
        if self._version is None or self._lost:
            return
        with suppress(EngineError):
            self._request("DELETE", self._path, params=_only(self._version))

    def _prepare(self) -> None:
        if exists(self._engine, INDEX):
            return
        settings = {"index.hidden": True, "index.number_of_shards": 1, "index.auto_expand_replicas": "0-1"}
        try:
            self._engine.request("PUT", f"/{INDEX}", body={"settings": settings, "mappings": {"enabled": False}})
        except EngineResponseError as error:
            if error.status != HTTPStatus.BAD_REQUEST:  # it exists: another builder made it in this moment
                raise

    def _expired(self, held: dict[str, Any], version: tuple[int, int]) -> bool:
        """Whether nobody renews this document. Where its time is near ours it is taken to be alive: waiting costs nobody's data."""
        if abs(time.time() - held["renewed"]) < EXPIRY:
            return False
        until = time.monotonic() + EXPIRY
        while time.monotonic() < until:
            time.sleep(min(1.0, EXPIRY / 10))
            found = self._read()
            if found is None or found[1] != version:
                return found is None
        return True

    def _read(self) -> tuple[dict[str, Any], tuple[int, int]] | None:
        try:
            found = self._engine.request("GET", self._path)
        except EngineResponseError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found["_source"], (found["_seq_no"], found["_primary_term"])

    def _write(self, over: tuple[int, int] | None) -> bool:
        """Write our document over that version, or as a new one; False where another one is there."""
        body = {
            "token": self._token,
            "place": self._place,
            "host": self._host,
            "process": os.getpid(),
            "since": self._since,
            "renewed": time.time(),
        }
        params: dict[str, Any] = {"op_type": "create"} if over is None else _only(over)
        try:
            answer = self._request("PUT", self._path, params=params, body=body)
        except EngineResponseError as error:
            if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return False
            raise
        self._version = (answer["_seq_no"], answer["_primary_term"])
        return True

    def _request(self, method: str, path: str, **more: Any) -> Any:
        return self._engine.request(method, path, timeout=_TIMEOUT, retry=False, **more)


@contextmanager
def held(engine: Engine, name: str, place: str) -> Iterator[Lease]:
    """Hold the lease of a name while the body runs.

    Where this role may not write to ``termweave-leases`` the lease holds on this host only: the lock in the folder of ledgers.

    Raises:
        TermweaveError: Another host holds it.
    """
    lease = Lease(engine, name, place)
    try:
        lease.take()
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        yield lease
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT):
            lease.renew()

    thread = threading.Thread(target=beat, name="termweave-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join(_TIMEOUT)
        lease.give_back()


def _only(version: tuple[int, int]) -> dict[str, int]:
    return {"if_seq_no": version[0], "if_primary_term": version[1]}
