"""Hidden states of a frozen backbone, computed once and kept: fp16, memory-mapped, in the user's cache folder (cache.py).

They are made with the int8 graph that will be shipped, not with torch: four times as fast on two cores (80 passages a second
against 18), and the heads learn from the very numbers they will meet.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave import atomic, locks, places
from termweave.encoders.export import attention_heads, write_fp32, write_int8
from termweave.encoders.folder import GRAPHS, Manifest, ModelFolder
from termweave.encoders.models.anchored import JointModel, StatesOnly
from termweave.encoders.runtime import OnnxModel, cuda_usable
from termweave.training import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.encoders.pieces import Pieces

_BLOCK = 512
#: Folder of the graph while it is run; a name that a run that goes on with the work of another knows.
_WORK = "graph"
_SAY_EVERY = 15.0
_NO_FEATURES = np.zeros((0, 2), dtype=np.float32)


@dataclass(frozen=True)
class States:
    """The states of many texts, one after the other.

    Attributes:
        values: float16 ``(pieces of all texts, 2d)``: the lower layer and the last, side by side; a memory map.
        starts: int64 ``(texts + 1,)``: where each text begins.
    """

    values: NDArray[np.float16]
    starts: NDArray[np.int64]

    @cached_property
    def means(self) -> NDArray[np.float32]:
        """The mean state of each text: float32 ``(texts, width)``."""
        return np.stack(
            [
                np.asarray(self.values[first:last], dtype=np.float32).mean(axis=0)
                for first, last in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
            ]
        )


def states(
    model: JointModel,
    identity: str,
    pieces: Sequence[Pieces],
    *,
    home: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> States:
    """Compute the states, or find them.

    Args:
        model: Its backbone is run; the heads are not.
        identity: Digest of the backbone's weights.
        pieces: Of the texts.
        home: Where the cache lies; None: ``states/`` in `places.cache()`.
        say: Told about progress.

    Returns:
        Of the texts in their order.

    Raises:
        OSError: The disk has no room for them.
    """
    layers = model.backbone.config.num_hidden_layers
    key = blake2b(f"{identity} {model.shape.layer} {layers}".encode(), digest_size=12)
    for each in pieces:
        key.update(each.ids.tobytes() + b"|")
    folder = (home or places.cache() / "states") / key.hexdigest()
    starts = np.concatenate(([0], np.cumsum([len(each.ids) for each in pieces]))).astype(np.int64)
    width = 2 * int(model.backbone.config.hidden_size)
    if not (folder / cache.DONE).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locks.one_at_a_time(folder.with_suffix(".lock"), lambda: say("states: another run makes these; waiting for it")):
            if not (folder / cache.DONE).is_file():
                partial = folder.with_suffix(".partial")  # left by a run that was stopped: gone on with
                if not partial.is_dir():
                    cache.make_room(folder.parent, 2 * int(starts[-1]) * width, say)
                    partial.mkdir()
                _compute(model, pieces, starts, partial / "states.f16", width, say)
                (partial / cache.DONE).write_text(json.dumps({"texts": len(pieces), "pieces": int(starts[-1]), "width": width}))
                partial.rename(folder)
    cache.used(folder)
    values = np.memmap(folder / "states.f16", dtype=np.float16, mode="r", shape=(int(starts[-1]), width))
    return States(values, starts)


def _compute(
    model: JointModel, pieces: Sequence[Pieces], starts: NDArray[np.int64], file: Path, width: int, say: Callable[[str], None]
) -> None:
    """Write the states of every text, block by block; blocks that an earlier run finished stay."""
    size = 2 * int(starts[-1]) * width
    mark = file.with_suffix(cache.MARK)
    whole = file.is_file() and file.stat().st_size == size and mark.is_file()
    ready = int(mark.read_text()) if whole else 0
    if not whole:
        cache.allocate(file, size)
    out = np.memmap(file, dtype=np.float16, mode="r+", shape=(int(starts[-1]), width))
    work = file.with_name(_WORK)
    shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
    work.mkdir()
    try:
        _fill(out, _graph(model, work), pieces, starts, ready, mark, say)
    finally:
        shutil.rmtree(work)


def _fill(
    out: np.memmap[Any, np.dtype[np.float16]],
    graph: OnnxModel,
    pieces: Sequence[Pieces],
    starts: NDArray[np.int64],
    ready: int,
    mark: Path,
    say: Callable[[str], None],
) -> None:
    """Run the graph on every text from `ready` on; `mark` says after each block how many are done."""
    begun = said = time.monotonic()
    for first in range(ready, len(pieces), _BLOCK):
        block = pieces[first : first + _BLOCK]
        for index, (found,) in enumerate(
            graph.run([each.ids for each in block], [_NO_FEATURES] * len(block), ["states"]), start=first
        ):
            out[starts[index] : starts[index + 1]] = found
        out.flush()
        atomic.write(mark, str(first + len(block)).encode())
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            done = first + len(block)
            rate = (done - ready) / (said - begun)
            say(f"states: {done:,} of {len(pieces):,} texts, {rate:.0f}/s, {(len(pieces) - done) / rate:.0f} s left")


def _graph(model: JointModel, work: Path) -> OnnxModel:
    """The frozen part as an int8 graph, or fp32 where there is a GPU to run it."""
    write_fp32(StatesOnly(model), work / GRAPHS["fp32"], ["states"])
    precision = "fp32" if cuda_usable() else "int8"
    if precision == "int8":
        write_int8(work / GRAPHS["fp32"], work / GRAPHS["int8"], heads=attention_heads(model))
    manifest = Manifest(name="states", kind="states", outputs=("states",), hash="", max_length=0, files={GRAPHS[precision]: ""})
    return OnnxModel(ModelFolder(work, manifest))
