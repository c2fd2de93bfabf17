"""The build lock of a name in the cluster, called its lease: one build at a time, whatever host it runs on.

A builder keeps one document in ``termweave-leases`` and renews it. A builder that finds the document of another host watches whether
it is renewed, and does not rely on the time in it: the clocks of two hosts differ, and may be set. So an expired lease is only taken
after having been watched, by compare-and-set: if two builders watch it, one gets it.

On a server that is busy with the documents of a build, renewals wait behind them. So they have a connection and a patience of their own,
and a lease is not taken over either while documents arrive in a generation that its holder writes to.

A builder that was paused may wake up after its lease was taken over. So each lease has a number, which is part of the alias that documents
are sent to (`index_setup.writer`): the next builder removes that alias, and the server refuses what the old one still sends.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from termweave.catalog.lineage import create_hidden_index, unless_missing
from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError, TermweaveError

INDEX = "termweave-leases"
#: Seconds between renewals, and seconds without a renewal after which the holder counts as dead.
BEAT, EXPIRY = 10.0, 30.0
#: Seconds until a renewal that failed is tried again.
_RETRY = 1.0
#: Seconds that the removal of a lease may take, and that it may be repeated: it must not hold up the end of a build.
_TIMEOUT, _REMOVAL = 5.0, 2.0


class Lease:
    """The lease of one name.

    Args:
        engine: The server.
        name: The name that is built.
        place: Id of this host's folder of ledgers. Whoever has the lock of that folder knows that no other builder uses it now.

    Attributes:
        engine: The server; once the lease is taken, over a connection of its own.
        name: The name that is built.
        number: Grows with every lease that is taken; 0 if this role may not write to ``termweave-leases``.
    """

    def __init__(self, engine: Engine, name: str, place: str) -> None:
        self.engine = engine
        self._path = f"/{INDEX}/_doc/{quote(name)}"
        self._place = place
        self._host = socket.gethostname()
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._token = f"{place}-{os.getpid()}-{time.monotonic_ns()}"
        self._version: tuple[int, int] | None = None
        self._lost = False
        self._renewed = time.monotonic()
        self._renewing = threading.Lock()
        self.name = name
        self.number = 0

    def check(self) -> None:
        """Check that this builder still has its lease. A lease that was not renewed in time, because the process was paused, is renewed first.

        Raises:
            EngineError: Another builder has the lease now, or had it.
        """
        if self._version is not None and time.monotonic() - self._renewed > EXPIRY:
            self.renew()
        if self._lost:
            raise self.lost()

    def lost(self) -> EngineError:
        """Return the error for a builder that has lost its lease."""
        hint = "Look whether another build runs. If not, run this command again: it resumes."
        message = f"Another build of {self.name!r} has taken over, or somebody removed the lock of this build from {INDEX}."
        return EngineError(message, hint)

    def take(self) -> None:
        """Take the lease of the name, also one of this host's own dead process or one that has expired.

        Raises:
            TermweaveError: A builder on another host holds it; the message names the host.
        """
        create_hidden_index(self.engine, INDEX, {"enabled": False})
        while True:
            if self._write(None):
                break
            current = self._read()
            if current is None:  # given back in this moment
                continue
            holder, version = current
            ours = (holder["place"], holder["host"]) == (self._place, self._host)
            if not ours and not self._expired(holder, version):
                raise TermweaveError(
                    f"Another build of {self.name!r} is running on {holder['host']} (process {holder['process']}, since {holder['since']}).",
                    f"Wait until it has ended, or stop it. If it was killed, its lock expires after {2 * EXPIRY:.0f} s at most.",
                )
            if self._write(version):
                break
        self.number = self._version[0] if self._version else 0

    def renew(self) -> bool:
        """Renew the lease; returns whether that succeeded. If the server does not answer, the caller tries again soon.

        A lease that is gone counts as lost and is never written again: the builder that took it over may have given it back.
        """
        with self._renewing, suppress(EngineError):
            if self._lost:
                return False
            if self._write(self._version, timeout=EXPIRY):
                return True
            # Refused because of its version: the document is another's, or ours from a request whose response was lost.
            current = self._read()
            if current is not None and current[0]["token"] == self._token:
                self._version, self._renewed = current[1], time.monotonic()
                return True
            self._lost = True
        return False

    def give_back(self) -> None:
        """Remove the lease. If the server does not answer, the lease expires by itself."""
        if self._version is None or self._lost:
            return
        with suppress(EngineError):
            brief = self.engine.patient(_REMOVAL)
            brief.request("DELETE", self._path, params=_only(self._version), timeout=_TIMEOUT, retry=True)

    def _expired(self, holder: dict[str, Any], version: tuple[int, int]) -> bool:
        """Whether the holder of the lease neither renews it nor sends documents. A holder that renewed it recently, by our clock, is taken for alive."""
        if abs(time.time() - holder["renewed"]) < EXPIRY:
            return False
        self.engine.outage.say(
            f"The build of {self.name!r} on {holder['host']} (process {holder['process']}) does not renew its lock. "
            f"Watching for {EXPIRY:.0f} s whether that build is still alive."
        )
        written, until = self._written(), time.monotonic() + EXPIRY
        while time.monotonic() < until:
            time.sleep(min(1.0, EXPIRY / 10))
            current = self._read()
            if current is None or current[1] != version:
                return current is None
        return self._written() == written

    def _written(self) -> dict[str, Any]:
        """Return generation -> statistics of the documents sent to it, for each generation of the name that has a builder; {}: this role may not ask."""
        parameters = {"filter_path": "indices.*.primaries.indexing.index_total", "expand_wildcards": "open,hidden"}
        try:
            # The aliases that builders send to. A name may begin with this one, as NAME-OTHER does: then both must be still.
            answer = self.engine.request("GET", f"/{quote(self.name)}-*.write-*/_stats/indexing", params=parameters)
        except EngineResponseError:
            return {}
        return dict(answer.get("indices", {}))

    def _read(self) -> tuple[dict[str, Any], tuple[int, int]] | None:
        """Read the document of the lease and its version (sequence number, primary term); None: there is no such document."""
        answer = unless_missing(lambda: self.engine.request("GET", self._path))
        return answer and (answer["_source"], (answer["_seq_no"], answer["_primary_term"]))

    def _write(self, over: tuple[int, int] | None, timeout: float | None = None) -> bool:
        """Write this builder's document of the lease. If the answer to a write is lost, the repeated write is refused, and we find our own document.

        Args:
            over: The version of the document that is replaced; None: there must be no document.
            timeout: Seconds to try; None: as long as usual.

        Returns:
            Whether the document was written; False: another version is stored.
        """
        holder = {"token": self._token, "place": self._place, "host": self._host, "process": os.getpid(), "since": self._since}
        body = holder | {"renewed": time.time()}
        params: dict[str, Any] = {"op_type": "create"} if over is None else _only(over)
        try:
            answer = self.engine.request("PUT", self._path, params=params, body=body, timeout=timeout, retry=True)
        except EngineResponseError as error:
            if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                return False
            raise
        self._version, self._renewed = (answer["_seq_no"], answer["_primary_term"]), time.monotonic()
        return True


@contextmanager
def hold_lease(engine: Engine, name: str, place: str) -> Iterator[Lease]:
    """Hold the lease of a name while the body runs.

    If this role may not write to ``termweave-leases``, only the lock in the folder of ledgers protects the build, on this host.

    Raises:
        TermweaveError: A builder on another host holds the lease.
    """
    lease = Lease(engine, name, place)
    try:
        lease.take()
    except EngineResponseError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        yield lease
        return
    lease.engine = engine.apart()
    ended = threading.Event()

    def renew() -> None:
        pause = BEAT
        while not ended.wait(pause):
            pause = BEAT if lease.renew() else min(_RETRY, BEAT)

    thread = threading.Thread(target=renew, name="termweave-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        ended.set()
        thread.join(_TIMEOUT)
        lease.give_back()
        lease.engine.close()


def _only(version: tuple[int, int]) -> dict[str, int]:
    """Return the parameters of a request that the server carries out only on this version of a document."""
    return {"if_seq_no": version[0], "if_primary_term": version[1]}
