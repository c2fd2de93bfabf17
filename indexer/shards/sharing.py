"""Sending of shards from several hosts: the builder's part, and that of a host that joins.

One process builds: it holds the build lock, the generation and the ledger, and verifies and publishes. It sends shard after shard. Others join
with `termweave index FOLDER NAME --join`: they take shards that nobody has taken, and report what the server acknowledged.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.errors import EngineError, UsageError
from termweave.indexer.ledger import build_lock
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.ledger.shard_claims import Claims, SentShard, SharedBuild
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.indexer.preparation.corpus_pass import entries_of
from termweave.indexer.shards.source import EncodedFolder, encodings_of
from termweave.search.catalog import lineage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.build_target import BuildTarget
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.indexer.pipeline.pipeline import StageCounts
    from termweave.search.catalog.lineage import Lineage

#: Seconds between two looks at the shards that other hosts send.
_LOOK = 1.0


def send(
    engine: Engine, folder: EncodedFolder, target: BuildTarget, send_part: Callable[[Source], int], waiting: Callable[[], None]
) -> int:
    """Send all shards, or have them sent by hosts that join.

    Args:
        engine: The server.
        folder: The shards.
        target: The generation.
        send_part: Sends what the ledger does not list as acknowledged of some shards.
        waiting: Called while other hosts send the last shards; an exception that it raises ends the work.

    Returns:
        How many texts were acknowledged.
    """
    ledger, before = target.ledger, target.ledger.acknowledged
    claims = Claims(engine, target.lineage.name)
    build = SharedBuild(target.index, folder.fingerprint, folder.plan.shards)
    if ledger.acknowledged == ledger.total:
        claims.close(build)  # a builder that died may have announced it
        return 0
    if not claims.announce(build):
        return send_part(folder.encoded())
    waits = list(range(build.shards))
    while waits:
        left = list(waits)
        for shard in waits:
            if _collect(claims, build, shard, ledger):
                left.remove(shard)
                continue
            with claims.held(build, shard) as ours:
                if not ours:
                    continue
                if not _collect(claims, build, shard, ledger):  # finished in this moment
                    send_part(folder.encoded([shard]))
                    claims.finish(build, shard, SentShard())  # the ledger knows already
                left.remove(shard)
        if left == waits:
            waiting()
            time.sleep(_LOOK)
        waits = left
    if ledger.acknowledged + ledger.refusals < ledger.total:  # a report may be older than what the ledger wants sent again
        send_part(folder.encoded())
    claims.close(build)
    return ledger.acknowledged - before


def _collect(claims: Claims, build: SharedBuild, shard: int, ledger: Ledger) -> bool:
    """Enter in the ledger what another host has sent; returns whether the shard is finished.

    The report is emptied then: later the ledger may want a document sent again that the server has lost, and knows better.
    """
    found = claims.finished(build, [shard])
    for sent in found.values():
        ledger.acknowledge(sent.acknowledged)
        ledger.refuse(sent.refused)
        if sent.acknowledged or sent.refused:
            claims.empty(build, shard)
    return bool(found)


@dataclass(frozen=True)
class Joined:
    """The result of joining a build.

    Attributes:
        name: The alias.
        index: The generation that is built.
        shards: Shards that this host sent.
        texts: Documents or passages in them.
        seconds: Wall-clock time.
    """

    name: str
    index: str
    shards: int
    texts: int
    seconds: float


class _ShardLedger(Ledger):
    """The ledger of one shard, which also keeps what it is told as a list."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sent = SentShard()

    def acknowledge(self, digests: Iterable[tuple[str, int]]) -> None:
        pairs = list(digests)
        self.sent.acknowledged += pairs
        super().acknowledge(pairs)

    def refuse(self, reasons: Iterable[tuple[str, str]]) -> None:
        pairs = list(reasons)
        self.sent.refused += pairs
        super().refuse(pairs)


def join(
    engine: Engine, source: Source, name: str, options: BuildOptions, report: Callable[[StageCounts], None] = lambda _: None
) -> Joined:
    """Send those shards of a build that another process runs which no host has taken, in one pass over all shards.

    Args:
        engine: The server.
        source: The folder of shards.
        name: The alias.
        options: `workers`, `patience` and `allow_refused` are used.
        report: Called with the counts of the shard that is sent.

    Raises:
        UsageError: No such build is running, or it is built of another folder.
    """
    started = time.monotonic()
    if not isinstance(source, EncodedFolder):
        raise UsageError(
            f"{source.name} is no folder of shards, which is what several hosts send.", "Encode it: 'termweave encode'."
        )
    engine = engine.patient(options.patience)
    claims = Claims(engine, name)
    build = claims.announced()
    if build is None and build_lock.is_held(engine, name):
        raise UsageError(
            f"The build of {name!r} sends no shards that other hosts could take: it still reads their ids.",
            "Run this command again in a moment.",
        )
    if build is None:
        raise UsageError(
            f"No build of {name!r} can be joined: none sends shards now.",
            f"Start it: 'termweave index {source.store.shown} {name}'.",
        )
    made = lineage.read(engine, build.index) if lineage.exists(engine, build.index) else None
    if made is None or made.complete:  # its builder could not take the announcement back
        raise UsageError(f"The build of {name!r} that could be joined has ended.", "There is nothing to send.")
    if made.name != name:
        raise UsageError(
            f"{build.index} is no generation of {name!r}.", f"Delete {name}/build in termweave-leases, and build again."
        )
    _refuse_other(source, made, build)
    shards = texts = 0
    for shard in range(build.shards):
        if claims.announced() != build:  # it has ended
            break
        if claims.finished(build, [shard]):
            continue
        with claims.held(build, shard) as lease:
            if lease is None or claims.finished(build, [shard]):
                continue
            sent = _send_shard(engine, source, shard, made, build, options, _while_held(lease, shard, report))
            claims.finish(build, shard, sent)
        shards, texts = shards + 1, texts + len(sent.acknowledged)
    return Joined(name, build.index, shards, texts, time.monotonic() - started)


def _while_held(lease: Lease, shard: int, report: Callable[[StageCounts], None]) -> Callable[[StageCounts], None]:
    """A report that ends the sending of a shard which another host has taken over: a host that slept must not send old texts late."""

    def checked(counts: StageCounts) -> None:
        try:
            lease.check()
        except EngineError as error:
            raise EngineError(
                f"Another host has taken over shard {shard}: this one did not renew its claim.",
                "Run this command again: it sends what nobody else sends.",
            ) from error
        report(counts)

    return checked


def _refuse_other(folder: EncodedFolder, made: Lineage, build: SharedBuild) -> None:
    """Refuse a folder that is another one than that of the build.

    Raises:
        UsageError: Its corpus, models or statistics are others.
    """
    models = {output: model.hash for output, model in made.models.items()}
    own = {output: model["hash"] for output, model in folder.plan.models.items() if output in models}
    counted = folder.counted.statistics
    for what, theirs, ours in (
        ("corpus", build.fingerprint, folder.fingerprint),
        ("number of shards", build.shards, folder.plan.shards),
        ("length of passages", made.passages.get("size", 0), folder.plan.passages.get("size", 0)),
        ("distance of passages", made.passages.get("stride", 0), folder.plan.passages.get("stride", 0)),
        ("models", models, own),
        ("statistics", made.statistics.get("hash", counted), counted),
    ):
        if theirs != ours:
            raise UsageError(
                f"{build.index} is built of another folder: its {what} is {theirs}, that of {folder.store.shown} is {ours}.",
                "Name the folder that the build was started with.",
            )


def _send_shard(
    engine: Engine,
    folder: EncodedFolder,
    shard: int,
    made: Lineage,
    build: SharedBuild,
    options: BuildOptions,
    report: Callable[[StageCounts], None],
) -> SentShard:
    """Send a whole shard; what an earlier host sent of it is sent again, under the same ids."""
    with tempfile.TemporaryDirectory(prefix="termweave-") as scratch, _ShardLedger(Path(scratch) / "shard.sqlite") as ledger:
        for block in folder.shard(shard).documents(encoded=False):
            ledger.enter(entries_of(block))
        pipeline = Pipeline(
            engine=engine,
            index=build.index,
            source=folder.encoded([shard]),
            encode=encodings_of,
            layout=made.layout,
            ledger=ledger,
            options=options,
        )
        pipeline.run(report)
        return ledger.sent
