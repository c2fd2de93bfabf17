"""Adds the pooling of a dense model to its graph, for GPUs: one vector leaves the GPU instead of the states of all tokens.

    pooled[b, m] = sum over the tokens n of pooling[b, n, m] * states[b, n]

What the tokens are multiplied with says which pooling it is (`encoders.kinds.pooling.token_factors`). The sum is one operator, Einsum,
with an input and an output of its own. They are appended to the graph's file, because two messages of protobuf one after the other are
one message with the fields of both. So neither the extra `train` nor another export is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The output with the states of all tokens in our own exports, and the names that other exporters give it, best first.
STATES = "last_hidden_state"
_STATES_NAMES = (STATES, "token_embeddings", "hidden_states", "output_0")
#: Input ``(batch, length, m)`` and output ``(batch, m, d)``, float32; names that no graph of others has.
POOLING, POOLED = "termweave/pooling", "termweave/pooled"


def states_of(outputs: Sequence[str]) -> str | None:
    """The output of a graph that gives the states of all tokens; None: it has none."""
    return next((name for name in _STATES_NAMES if name in outputs), None)


def with_pooling(graph: bytes, states: str) -> bytes:
    """The graph with the input `POOLING` and the output `POOLED`.

    Args:
        graph: A model as ONNX stores it.
        states: Its output float32 ``(batch, length, d)``.
    """
    # The numbers of the fields are those of onnx.proto. An attribute: name, s (text), type (3: text).
    equation = _text(1, "equation") + _text(4, "bnm,bnd->bmd") + _number(20, 3)
    # A node: input, input, output, op_type, attribute.
    node = _text(1, POOLING) + _text(1, states) + _text(2, POOLED) + _text(4, "Einsum") + _field(5, equation)
    # A graph: node, input, output.
    added = (
        _field(1, node)
        + _field(11, _value(POOLING, ("batch", "length", "poolings")))
        + _field(12, _value(POOLED, ("batch", "poolings", "width")))
    )
    return graph + _field(7, added)  # a model: graph


def _value(name: str, axes: tuple[str, ...]) -> bytes:
    """The description of an input or output."""
    shape = b"".join(_field(1, _text(2, axis)) for axis in axes)
    tensor = _number(1, 1) + _field(2, shape)  # elem_type (1: float32), shape
    return _text(1, name) + _field(2, _field(1, tensor))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf with its length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
