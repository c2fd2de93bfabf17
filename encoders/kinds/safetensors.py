"""Small safetensors files without the package safetensors, which the base install does not have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Number formats that a tensor may have; bfloat16 is the upper half of a float32.
_FORMATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_safetensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """Read all tensors of a small safetensors file as float32.

    Raises:
        ValueError: The file is malformed or has a number format other than floats.
    """
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        body = memoryview(data)[8 + size :]
        return {name: _tensor(body, entry) for name, entry in header.items() if name != "__metadata__"}
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its header is malformed ({type(error).__name__})") from error


def _tensor(body: memoryview, entry: dict[str, Any]) -> NDArray[np.float32]:
    """One tensor of a safetensors file, from its entry in the header."""
    (first, end), shape, kind = entry["data_offsets"], entry["shape"], str(entry["dtype"])
    if kind not in _FORMATS or not 0 <= first <= end <= len(body):
        raise ValueError(f"a tensor of {kind} cannot be read" if kind not in _FORMATS else "it is cut short")
    values = np.frombuffer(body[first:end], dtype=_FORMATS[kind])
    if kind == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32).reshape([int(length) for length in shape])
