"""Watch an index: what its application writes is found by the sequence numbers of the shards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from termweave.engine.index_source.point_in_time import ShardView, sequence_numbers, uuid_of
from termweave.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.engine import Engine


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
    engine: Engine, index: str, seen: Mapping[str, int], every: float, read: Callable[[Mapping[str, int]], bool]
) -> NoReturn:
    """Call `read` whenever the application has written, without end.

    Args:
        engine: The server of the index.
        index: The concrete index.
        seen: The checkpoints up to which it was read; a shard without one is read from its beginning.
        every: Seconds between two looks.
        read: Reads what is after these checkpoints; returns whether nothing of it is left to do.

    Raises:
        InputError: The index was deleted, and perhaps made again.
    """
    done = dict(seen)
    while True:
        reached = checkpoints(engine, index)
        if len({shard.partition("/")[0] for shard in (*done, *reached)}) > 1:
            raise InputError(f"The index {index!r} was deleted and made again.", "Run the command again for the new index.")
        if any(number > done.get(shard, -1) for shard, number in reached.items()) and read(dict(done)):
            done |= reached
        time.sleep(every)
