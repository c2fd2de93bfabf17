"""Files of hard negatives that were mined during training, beside the checkpoints: a resumed run draws the same ones."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from termweave.support import atomic_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_NAME = "negatives-{}.npz"


def save(home: Path, step: int, negatives: Sequence[list[NDArray[np.int64]]]) -> None:
    """Write the negatives of each data set that were mined after a step."""
    arrays = []
    for lists in negatives:
        arrays += [np.concatenate([np.zeros(0, np.int64), *lists]), np.array([len(each) for each in lists], np.int64)]
    buffer = BytesIO()
    np.savez(buffer, *arrays)
    atomic_files.write(home / _NAME.format(step), buffer.getvalue())


def read(home: Path, step: int) -> dict[int, list[list[NDArray[np.int64]]]]:
    """The two newest files that were written up to a step: step -> negatives of each data set."""
    steps = sorted(int(file.stem.partition("-")[2]) for file in home.glob(_NAME.format("*")))
    found = {}
    for each in [each for each in steps if each <= step][-2:]:
        with np.load(home / _NAME.format(each)) as file:
            arrays = [file[name] for name in file.files]  # in the order in which they were written
        found[each] = [_lists(*pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]
    return found


def _lists(values: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []
