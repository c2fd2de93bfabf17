"""Watch an index: what its application writes is found by the sequence numbers of the shards."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from termweave.corpora.index.point_in_time import ShardView, sequence_numbers, uuid_of
from termweave.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from termweave.corpora.sources import Skips
    from termweave.engine import Engine
    from termweave.indexer.enrichment.index_passes import Hit, IndexPasses, PassCounts, Write
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.preparation.corpus_pass import BuildProgress

#: Looks at writes that cannot be read until they are taken for deletions, which leave nothing to read. Each look may ask another node.
_LOOKS = 10
#: The stage of the progress while the application's writes are awaited.
STAGE = "Watching"


def checkpoints(engine: Engine, index: str) -> dict[str, int]:
    """Return for each open shard (`ShardView.key`) the sequence number up to which every write is done on all of its copies.

    The highest number would not do: writes run at the same time, so a higher number can be visible before a lower one.

    Raises:
        InputError: The index was deleted.
    """
    uuid = uuid_of(engine, index)
    numbers = sequence_numbers(engine, index).items()
    return {ShardView(index, shard, uuid).key: each["global_checkpoint"] for shard, each in numbers}


def watch(
    engine: Engine, index: str, seen: Mapping[str, int], every: float, read: Callable[[Mapping[str, int]], Mapping[str, int]]
) -> NoReturn:
    """Call `read` whenever the application has written, without end.

    A copy of a shard that is cut off from the others may answer, too, without their last writes. So what is not reached is read again.

    Args:
        engine: The server of the index.
        index: The concrete index.
        seen: The checkpoints up to which it was read; a shard without one is read from its beginning.
        every: Seconds between two looks.
        read: Enriches what is after these checkpoints. What is written meanwhile, also to a document that it has read, comes after those
            that were taken before: it is the work of the next call. It returns the last number that it read of each shard.

    Raises:
        InputError: The index was deleted, and perhaps made again.
    """
    done, missed = dict(seen), Counter[str]()
    while True:
        reached = checkpoints(engine, index)
        if len({shard.partition("/")[0] for shard in (*done, *reached)}) > 1:
            raise InputError(f"The index {index!r} was deleted and made again.", "Run the command again for the new index.")
        if any(number > done.get(shard, -1) for shard, number in reached.items()):
            last = read(dict(done))
            for shard, number in reached.items():
                behind = done.get(shard, -1) < number and last.get(shard, -1) < number
                missed[shard] = missed[shard] + 1 if behind else 0
                if not behind or missed[shard] == _LOOKS:
                    done[shard], missed[shard] = number, 0
        time.sleep(every)


def reader(
    passes: IndexPasses,
    writes_of: Callable[[Sequence[Hit], PassCounts], Iterator[Write]],
    total: PassCounts,
    left_out: Skips,
    lease: Lease,
    progress: BuildProgress,
    say: Callable[[str], None],
) -> Callable[[Mapping[str, int]], Mapping[str, int]]:
    """A function that enriches what was written after some checkpoints.

    Args:
        passes: Reads and writes the index.
        writes_of: Makes the writes of a page of documents.
        total: Counts them.
        left_out: Takes the documents that cannot be read, also those that the last pass came upon.
        lease: Of the index; lost, it ends the watch.
        progress: Called with (stage, written, None, time).
        say: Called with a sentence about each document that cannot be read.
    """

    def name_skipped() -> None:
        for skipped in passes.source.skipped:
            if skipped not in left_out.kept:
                left_out.add(skipped)
                say(f"Left out: {skipped}.")

    def read(after: Mapping[str, int]) -> Mapping[str, int]:
        lease.check()
        counts = passes.run(writes_of, after=after)
        total.written, total.conflicts = total.written + counts.written, total.conflicts + counts.conflicts
        name_skipped()
        if counts.written:
            progress(STAGE, total.written, None, f"last written {time.strftime('%H:%M:%S')}")
        return counts.last

    name_skipped()
    return read
