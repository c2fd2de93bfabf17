"""Claims: which host sends which shard of a build, kept beside the leases in the cluster.

The builder, which holds the build lock and the ledger, announces the build in one document. Whoever sends a shard holds a lease of it, so that
the shard of a host that dies is taken over. A shard that is sent gets a document with what the server acknowledged, which the builder
enters in its ledger. What is larger than a request may be on small managed servers lies in several documents.
"""

from __future__ import annotations

import base64
import os
import secrets
import zlib
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.indexer.ledger import build_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.engine import Engine


#: Most characters of a document; some managed servers take requests of 10 MB at most.
_MOST = 4_000_000


@dataclass(frozen=True)
class SharedBuild:
    """A build that other hosts may join.

    Attributes:
        index: The generation.
        fingerprint: Fingerprint of the corpus.
        shards: Number of shards.
    """

    index: str
    fingerprint: str
    shards: int


@dataclass
class SentShard:
    """What the server answered for a shard.

    Attributes:
        acknowledged: (id, digest of the encoding) of the texts that it has.
        refused: (id, reason) of the texts that it will never take.
    """

    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def packed(self) -> list[str]:
        """What the cluster keeps, in one or more parts."""
        whole = base64.b64encode(zlib.compress(orjson.dumps(asdict(self)))).decode()
        return [whole[first : first + _MOST] for first in range(0, len(whole), _MOST)]

    @classmethod
    def unpacked(cls, packed: str) -> SentShard | None:
        """Read the parts of `packed`, joined; None if they are damaged: the shard is sent again."""
        try:
            loaded = orjson.loads(zlib.decompress(base64.b64decode(packed)))
            acknowledged = [(str(identity), int(digest)) for identity, digest in loaded["acknowledged"]]
            return cls(acknowledged, [(str(identity), str(reason)) for identity, reason in loaded["refused"]])
        except (ValueError, KeyError, TypeError, zlib.error):
            return None


class Claims:
    """The documents of one build.

    Args:
        engine: The server.
        name: The alias that is built.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._place = f"{os.getpid()}-{secrets.token_hex(8)}"  # two workers of one host exclude each other, too

    def announce(self, build: SharedBuild) -> bool:
        """Let other hosts join; returns whether this user may."""
        try:
            self._put("build", asdict(build))
        except EngineResponseError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return False
        return True

    def announced(self) -> SharedBuild | None:
        """The build that can be joined; None if there is none, or if what another program wrote there is none."""
        stored = self._get("build") or {}
        index, fingerprint, shards = (stored.get(name) for name in ("index", "fingerprint", "shards"))
        if isinstance(index, str) and isinstance(fingerprint, str) and isinstance(shards, int):
            return SharedBuild(index, fingerprint, shards)
        return None

    def close(self, build: SharedBuild) -> None:
        """Remove everything: all shards are sent. A document that cannot be removed does no harm."""
        with suppress(EngineError):
            announced = ["build"] if self.announced() == build else []  # not that of a build that has taken over
            self._delete([*announced, *(self._sent(build, shard) for shard in range(build.shards))])

    @contextmanager
    def held(self, build: SharedBuild, shard: int) -> Iterator[build_lock.Lease | None]:
        """Hold a shard while the body runs; yields its lease, or None if another host is sending it.

        Raises:
            UsageError: This user may not claim shards.
        """
        lease = build_lock.held(self._engine, f"{build.index}/{shard}", self._place)
        try:
            ours = lease.__enter__()
        except EngineError:
            raise
        except TermweaveError:
            yield None
            return
        try:
            if not ours.is_written:
                raise UsageError(
                    f"This user may not write to {build_lock.INDEX}, where hosts note which shards they send.",
                    "Grant it (docs/permissions.md), or let one host send everything.",
                )
            yield ours
        finally:
            lease.__exit__(None, None, None)

    def finish(self, build: SharedBuild, shard: int, sent: SentShard) -> None:
        """Note that a shard is sent."""
        first, *more = sent.packed()
        for number, part in enumerate(more, start=1):
            self._put(self._sent(build, shard, number), {"packed": part})
        self._put(self._sent(build, shard), {"packed": first, "parts": 1 + len(more)})  # last: it says that the others are there

    def empty(self, build: SharedBuild, shard: int) -> None:
        """Forget what was acknowledged of a shard that is sent; that it is sent stays noted."""
        parts = self._parts(self._get(self._sent(build, shard)))
        self.finish(build, shard, SentShard())
        if parts > 1:
            self._delete([self._sent(build, shard, number) for number in range(1, parts)])

    def finished(self, build: SharedBuild, shards: Sequence[int]) -> dict[int, SentShard]:
        """Those of the shards that are sent, with what the server acknowledged."""
        found = {}
        for shard in shards:
            first = self._get(self._sent(build, shard))
            sent = SentShard.unpacked("".join(self._stored(build, shard, first))) if first else None
            if sent is not None:
                found[shard] = sent
        return found

    def _stored(self, build: SharedBuild, shard: int, first: dict[str, Any]) -> Iterator[str]:
        """The parts of a shard's report, up to one that is missing."""
        yield str(first.get("packed", ""))
        for number in range(1, self._parts(first)):
            stored = self._get(self._sent(build, shard, number))
            if stored is None:
                return
            yield str(stored.get("packed", ""))

    @staticmethod
    def _parts(first: dict[str, Any] | None) -> int:
        parts = (first or {}).get("parts", 1)
        return parts if isinstance(parts, int) else 1

    def _sent(self, build: SharedBuild, shard: int, part: int = 0) -> str:
        return f"sent/{build.index}/{shard}" + (f"/{part}" if part else "")

    def _path(self, key: str) -> str:
        return f"/{build_lock.INDEX}/_doc/{quote(f'{self._name}/{key}')}"

    def _put(self, key: str, body: dict[str, Any]) -> None:
        self._engine.request("PUT", self._path(key), body=body, retry=True)

    def _get(self, key: str) -> dict[str, Any] | None:
        try:
            stored: dict[str, Any] = self._engine.request("GET", self._path(key))["_source"]
        except EngineResponseError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return stored

    def _delete(self, keys: Sequence[str]) -> None:
        actions = [orjson.dumps({"delete": {"_id": f"{self._name}/{key}"}}, option=orjson.OPT_APPEND_NEWLINE) for key in keys]
        self._engine.request("POST", f"/{build_lock.INDEX}/_bulk", body=b"".join(actions))
