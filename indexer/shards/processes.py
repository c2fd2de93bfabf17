"""Shards encoded in processes of this host."""

from __future__ import annotations

import os
import signal
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.errors import TermweaveError
from termweave.support.python_processes import process_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from termweave.indexer.shards.corpus_encoding import ShardEncoder

#: Encodes a shard; one for each process of the pool.
_encode: Callable[[str], int] | None = None


def encode_in_processes(encoder: ShardEncoder, files: Sequence[str], count: int) -> Iterator[int]:
    """Encode shards in a pool of processes; yields the number of texts of each when it is whole.

    Args:
        encoder: Encodes a shard.
        files: Names of the files of the shards.
        count: How many processes; they share the cores.

    Raises:
        TermweaveError: A shard cannot be encoded, or a process died.
    """
    encoder = replace(encoder, threads=encoder.threads or max(1, (os.cpu_count() or 1) // count))
    with process_pool(min(count, len(files))) as pool:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes that are started now will not see Ctrl-C
            waiting = [pool.submit(_encoded, encoder, file) for file in files]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            for ended in as_completed(waiting):
                yield ended.result()
        except BrokenProcessPool as error:
            raise TermweaveError(
                "A process that encodes was killed.",
                "If the memory was full, use fewer --workers. Run the same command again: it does what is missing.",
            ) from error


def _encoded(encoder: ShardEncoder, file: str) -> int:
    global _encode  # noqa: PLW0603 - models are opened once in each process
    _encode = _encode or encoder.opened()
    return _encode(file)
