"""Make one vector of the states of a text's tokens: pooling, the dense layers of sentence-transformers, scaling to length 1."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Pooling modes of sentence-transformers; several of them, joined by "+", are concatenated.
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_erf = np.vectorize(math.erf, otypes=[np.float64])


def pool(states: NDArray[np.float32], mode: str, prompt: int = 0) -> NDArray[np.float32]:
    """Pool the states of one text's tokens into one vector.

    Args:
        states: ``(n, d)``: the state of each token, without padding.
        mode: One of `MODES`, or several joined by "+".
        prompt: Number of tokens at the beginning that are left out of the pooling.

    Returns:
        ``(d,)``, or ``(m * d,)`` for m modes.
    """
    return np.concatenate([_pool_one(states, name, min(prompt, len(states))) for name in mode.split("+")])


@lru_cache(4096)
def token_factors(length: int, mode: str, prompt: int = 0) -> NDArray[np.float32]:
    """The factors by which `pool` multiplies each token's state before it sums the states. The mode "max" is no sum and has no factors.

    Args:
        length: Number of tokens of the text, n.
        mode: As in `pool`, without "max".
        prompt: As in `pool`.

    Returns:
        ``(n, m)`` for m modes.
    """
    # Pooled, the rows of the unit matrix say how much of each token is in the sum.
    return pool(np.eye(length, dtype=np.float32), mode, prompt).reshape(-1, length).T


def _pool_one(states: NDArray[np.float32], mode: str, prompt: int) -> NDArray[np.float32]:
    rest = states[prompt:]
    result: NDArray[np.float32]
    if mode == "cls":
        result = rest[0] if len(rest) else states[0]
    elif mode == "lasttoken":
        result = states[-1]
    elif not len(rest):
        result = np.zeros(states.shape[1], dtype=np.float32)
    elif mode == "max":
        result = rest.max(axis=0)
    elif mode == "weightedmean":
        weights = np.arange(prompt + 1, len(states) + 1, dtype=np.float32)
        result = (weights @ rest) / weights.sum()
    else:
        result = rest.sum(axis=0) / np.float32(len(rest) if mode == "mean" else math.sqrt(len(rest)))
    return result


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a vector to length 1, in float64. A vector of zeros becomes the first axis: valid, and the same every time."""
    wide = vector.astype(np.float64)
    length = float(np.sqrt(wide @ wide))
    if not np.isfinite(length):
        raise ModelError("The model gives vectors that are no numbers (NaN or infinity).", "It diverged, or the file is damaged.")
    if length == 0.0:
        wide = np.zeros_like(wide)
        wide[0] = length = 1.0
    return (wide / length).astype(np.float32)


#: The last part of torch's class name -> the function.
ACTIVATIONS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "Identity": lambda values: values,
    "Tanh": np.tanh,
    "ReLU": lambda values: np.maximum(values, np.float32(0)),
    "Sigmoid": lambda values: (1 / (1 + np.exp(-values))).astype(np.float32),
    "GELU": lambda values: (values * 0.5 * (1.0 + _erf(values / math.sqrt(2.0)))).astype(np.float32),
}


@dataclass(frozen=True)
class DenseLayer:
    """A Dense module of sentence-transformers: ``activation(W x + b)``, with the residual where the module has one.

    Attributes:
        weight: ``(out, in)``.
        bias: ``(out,)``, zeros where the module has none.
        activation: A key of `ACTIVATIONS`.
        residual: ``(out, in)``: the matrix whose product with the input is added to the output; None: the module has no residual.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    activation: str
    residual: NDArray[np.float32] | None = None

    @classmethod
    def read(cls, file: Path, activation: str, residual: object = None) -> DenseLayer:
        """Read the module's ``model.safetensors``.

        Raises:
            ModelError: The file is damaged or holds no such layer.
        """
        try:
            tensors = read_safetensors(file)
            weight = tensors["linear.weight"]
            bias = tensors.get("linear.bias", np.zeros(len(weight), dtype=np.float32))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{file} is not a dense layer: {error}.", "Copy the model folder again.") from error
        added = tensors.get("residual.weight", np.eye(len(weight), dtype=np.float32)) if residual else None
        if weight.ndim != 2 or bias.shape != weight.shape[:1] or (added is not None and added.shape != weight.shape):
            raise ModelError(f"{file} is not a dense layer: its tensors have other shapes.", "Copy the model folder again.")
        return cls(weight, bias, activation, added)

    def __call__(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the layer to a vector: ``(in,) -> (out,)``."""
        result: NDArray[np.float32] = ACTIVATIONS[self.activation](self.weight @ vector + self.bias)
        return result if self.residual is None else result + self.residual @ vector


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
        raise ValueError(f"a tensor of type {kind} cannot be read" if kind not in _FORMATS else "it is cut short")
    values = np.frombuffer(body[first:end], dtype=_FORMATS[kind])
    if kind == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32).reshape([int(length) for length in shape])
