"""Rewrite a graph: for one text at a time on a CPU (`write_single`), or so that it also pools a dense model's states on a GPU (`with_pooling`).

For one text the graph is fast and gives the same numbers on every processor with AVX2. Without padding there is no mask to add, and
the scale of the scores moves to the queries, which are smaller. The softmax is written out,
because ONNX Runtime adds up its exponentials in another order with AVX-512 than without; nothing else in an int8 graph differs between
the two, but a last bit can round an activation to another integer, and later layers make more of it:

    softmax(scale * q k^T + mask) v     MatMul, Mul, Add, Softmax, MatMul
        ->  s = (scale * q) k^T,  e = exp(s - max s),  (e v) / sum e

Measured on 180 texts of 170 pieces (MiniLM-L6, one thread, Intel with VNNI): the same bits with and without AVX-512 for all texts, where
the one operator ``MultiHeadAttention`` gave other numbers for 92 % of them (a logit by up to .19), at 1.07 times its speed.
The runtime gives a CPU one text at a time anyway (`encoders.onnx.runtime`). A softmax of any other shape stays as it is.

With the pooling one vector leaves the GPU instead of the states of all tokens:

    pooled[b, m] = sum over the tokens n of pooling[b, n, m] * states[b, n]

What the tokens are multiplied with says which pooling it is (`encoders.kinds.pooling.token_factors`). The sum is one operator, Einsum,
with an input and an output of its own. They are appended to the graph's file, because two messages of protobuf one after the other are
one message with the fields of both. So neither the extra `train` nor another export is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MASK = "attention_mask"
#: The initializer that names the last axis.
_LAST = "last_axis"


def write_single(graph_file: Path, file: Path, *, only_mask: bool) -> int:
    """Write a graph for one text at a time.

    Args:
        graph_file: A graph of `checked_graphs`, quantised or not.
        file: The file to write, which may be the same: same outputs, without the input ``attention_mask``.
        only_mask: Whether the attention adds nothing but the mask to its scores, so that the addition can be left out.

    Returns:
        The number of attentions that were rewritten.
    """
    import onnx  # noqa: PLC0415 - only when called

    model = onnx.load(graph_file)
    graph = _Graph(model.graph)
    softmaxes = [node for node in model.graph.node if node.op_type == "Softmax"]
    products = {id(product): softmax for softmax in softmaxes if (product := graph.product(softmax)) is not None}
    nodes: list[Any] = []
    for node in model.graph.node:
        softmax = products.get(id(node))
        nodes += [node] if softmax is None else graph.attention(softmax, node, only_mask=only_mask)
    one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1])
    ones = [
        onnx.helper.make_node("Shape", ["input_ids"], [f"{MASK}/shape"]),
        onnx.helper.make_node("ConstantOfShape", [f"{MASK}/shape"], [MASK], value=one),
    ]
    replace(model.graph.input, [node for node in model.graph.input if node.name != MASK])
    replace(model.graph.node, _needed([*ones, *nodes], {output.name for output in model.graph.output}))
    model.graph.initializer.append(onnx.helper.make_tensor(_LAST, onnx.TensorProto.INT64, [1], [-1]))
    read = {name for node in model.graph.node for name in node.input}
    replace(model.graph.initializer, [tensor for tensor in model.graph.initializer if tensor.name in read])
    onnx.save(model, file)
    return len(products)


class _Graph:
    """An index of a graph's nodes by the tensors that they make and that they read."""

    def __init__(self, graph: Any) -> None:
        self.made = {output: node for node in graph.node for output in node.output}
        self.read: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self.read.setdefault(name, []).append(node)

    def product(self, softmax: Any) -> Any | None:
        """The node that multiplies a softmax over the last axis with the values of an attention; None: there is no such node, or another reader."""
        last = all(part.i == -1 for part in softmax.attribute if part.name == "axis")
        readers = self.read.get(softmax.output[0], [])
        alone = last and len(readers) == 1 and readers[0].op_type == "MatMul" and readers[0].input[0] == softmax.output[0]
        return readers[0] if alone else None

    def attention(self, softmax: Any, product: Any, *, only_mask: bool) -> list[Any]:
        """Make the nodes that replace a softmax and its product with the values; the last node's output keeps the product's name."""
        from onnx import helper  # noqa: PLC0415

        name, nodes = softmax.name, []

        def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
            return output

        scores = softmax.input[0]
        if only_mask and (factors := self._factors(scores)) is not None:
            queries, keys, scale = factors
            scores = add("MatMul", [add("Mul", [queries, scale], f"{name}/queries"), keys], f"{name}/scores")
        largest = add("ReduceMax", [scores, _LAST], f"{name}/largest")
        powers = add("Exp", [add("Sub", [scores, largest], f"{name}/below")], f"{name}/powers")
        total = add("ReduceSum", [powers, _LAST], f"{name}/total")
        add("Div", [add("MatMul", [powers, product.input[1]], f"{name}/weighed"), total], product.output[0])
        return nodes

    def _factors(self, masked: str) -> tuple[str, str, str] | None:
        """Names of the queries, the keys and the constant scale behind masked scores; None: the nodes are not as torch's exporter writes them."""
        chain, name = [], masked
        for kind in ("Add", "Mul", "MatMul"):
            node = self.made.get(name)
            if node is None or node.op_type != kind:
                return None
            chain.append(node)
            name = node.input[0]
        _, scaled, scores = chain
        scale = self.made.get(scaled.input[1])
        return (*scores.input, scaled.input[1]) if scale is not None and scale.op_type == "Constant" else None


def _needed(nodes: list[Any], tensors: set[str]) -> list[Any]:
    """The nodes on which the given tensors depend, in their order."""
    needed = []
    for node in reversed(nodes):
        if tensors.intersection(node.output):
            tensors.update(node.input)
            needed.append(node)
    return needed[::-1]


def replace(field: Any, messages: list[Any]) -> None:
    """Replace the content of a repeated field. Messages of the field itself are copied before the field is cleared."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(copies)


#: The output with the states of all tokens in our own exports, and the names that other exporters give it, best first.
STATES = "last_hidden_state"
_STATES_NAMES = (STATES, "token_embeddings", "hidden_states", "output_0")
#: Input ``(batch, length, m)`` and output ``(batch, m, d)``, float32; names that no graph of others has.
POOLING, POOLED = "termweave/pooling", "termweave/pooled"


def states_of(outputs: Sequence[str]) -> str | None:
    """The name of the output that gives the states of all tokens, among a graph's outputs; None: no output does."""
    return next((name for name in _STATES_NAMES if name in outputs), None)


def with_pooling(graph: bytes, states: str) -> bytes:
    """Add the input `POOLING` and the output `POOLED` to a graph; return the new graph as ONNX stores it.

    Args:
        graph: The graph as ONNX stores it.
        states: Name of the graph's output with the states of the tokens, float32 ``(batch, length, d)``.
    """
    # The numbers of the fields are those of onnx.proto. An attribute: name, s (text), type (3: text).
    equation = _text(1, "equation") + _text(4, "bnm,bnd->bmd") + _number(20, 3)
    # A node: input, input, output, op_type, attribute.
    node = _text(1, POOLING) + _text(1, states) + _text(2, POOLED) + _text(4, "Einsum") + _field(5, equation)
    # A graph: node, input, output.
    pooling = _field(11, _value(POOLING, ("batch", "length", "poolings")))
    pooled = _field(12, _value(POOLED, ("batch", "poolings", "width")))
    return graph + _field(7, _field(1, node) + pooling + pooled)  # a model: graph


def _value(name: str, axes: tuple[str, ...]) -> bytes:
    """The protobuf message that describes an input or output of a graph: its name and its axes."""
    shape = b"".join(_field(1, _text(2, axis)) for axis in axes)
    tensor = _number(1, 1) + _field(2, shape)  # elem_type (1: float32), shape
    return _text(1, name) + _field(2, _field(1, tensor))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    """The bytes of a protobuf field that holds `content`, with its length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
