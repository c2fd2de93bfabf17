"""Shards encoded by Ray Data (extra `ray`), which keeps an actor on each core of this host or of a cluster, and starts one again that died."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from termweave.errors import TermweaveError, UsageError
from termweave.indexer.shards.store import ShardStore
from termweave.support import private_files
from termweave.support.extras import install
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.indexer.shards.corpus_encoding import ShardEncoder


def encode_on_ray(encoder: ShardEncoder, files: Sequence[str]) -> Iterator[int]:
    """Encode shards on the cluster of $RAY_ADDRESS, else on one of this host that ends with the work.

    Yields:
        The number of texts of each shard, when it is whole.

    Raises:
        UsageError: Ray is not installed.
        TermweaveError: The cluster cannot be reached or started, or a shard cannot be encoded.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        ray: Any = import_module("ray")  # it is large, and only a cluster needs it
        data: Any = import_module("ray.data")
    except ImportError as error:
        raise UsageError("Ray is not installed.", f"Run `{install('ray')}`.") from error
    address = os.environ.get("RAY_ADDRESS")
    empty = tempfile.TemporaryDirectory(dir=private_files.scratch())
    try:
        local = {} if address else {"include_dashboard": False}
        with contextlib.chdir(empty.name):  # workers import from the folder that Ray is started in
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **local)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        empty.cleanup()
        raise TermweaveError(
            f"The Ray cluster {address or 'on this host'} does not start: {first_line(error)}.", "Correct $RAY_ADDRESS."
        ) from error
    try:
        data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        named = data.from_items([{"file": file} for file in files], override_num_blocks=len(files))
        encoded = named.map_batches(
            _Actor,
            fn_constructor_args=(replace(encoder, folder=ShardStore(encoder.folder).everywhere),),
            batch_size=1,
            compute=data.ActorPoolStrategy(size=min(cores, len(files))),
            num_cpus=1,
        )
        for row in encoded.iter_rows():
            if row["message"]:
                raise TermweaveError(row["message"], row["hint"])
            yield row["texts"]
    except ray.exceptions.RayError as error:
        raise TermweaveError(
            f"The cluster failed: {first_line(error)}.", "Run the same command again: it does what is missing."
        ) from error
    finally:
        ray.shutdown()
        empty.cleanup()


class _Actor:
    """Encodes one shard after the other; an error of termweave is a row, because Ray would wrap it."""

    def __init__(self, encoder: ShardEncoder) -> None:
        self._encoder = encoder
        self._encode: Any = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        try:
            self._encode = self._encode or self._encoder.opened()
            return {"texts": [self._encode(str(batch["file"][0]))], "message": [""], "hint": [""]}
        except TermweaveError as error:
            return {"texts": [0], "message": [error.message], "hint": [error.hint]}
