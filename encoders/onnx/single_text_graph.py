"""Rewrites a graph for one text at a time: without padding there is no mask, and attention is one operator.

    softmax(scale * q k^T + mask) v     Transpose, MatMul, Mul, Add, Softmax, MatMul, Transpose, Reshape
        ->  com.microsoft.MultiHeadAttention(q, k, v)

ONNX Runtime has a blocked attention for the CPU, which keeps the ``(heads, n, n)`` scores in the cache; it is used if nothing is
masked. The graph that torch's exporter writes moves the scores through memory five times. The runtime gives a CPU one text at a
time anyway (`encoders.onnx.runtime`). An attention of any other shape stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MASK = "attention_mask"
#: The operators that torch's exporter writes for transformers' eager attention, before and after the softmax.
_BEFORE, _AFTER, _SOURCE = ("Add", "Mul", "MatMul"), ("MatMul", "Transpose", "Reshape"), ("Transpose", "Reshape")


def write_single(graph_file: Path, file: Path, heads: int) -> int:
    """Write a graph for one text at a time.

    Args:
        graph_file: A graph of `graph_writer`, quantised or not.
        file: The file to write, which may be the same: same outputs, without the input ``attention_mask``.
        heads: Number of heads of an attention; 0 keeps every attention as it is.

    Returns:
        The number of attentions that became one operator.
    """
    import onnx  # noqa: PLC0415 - only when called

    model = onnx.load(graph_file)
    graph = _Graph(model.graph)
    candidates = graph.of_kind("Softmax") if heads else []
    fused = [attention for softmax in candidates if (attention := graph.attention(softmax, heads)) is not None]
    for output, attention in fused:
        output.CopyFrom(attention)
    if fused:
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1])
    ones = [
        onnx.helper.make_node("Shape", ["input_ids"], [f"{MASK}/shape"]),
        onnx.helper.make_node("ConstantOfShape", [f"{MASK}/shape"], [MASK], value=one),
    ]
    _keep(model.graph.input, [node for node in model.graph.input if node.name != MASK])
    _keep(model.graph.node, _needed([*ones, *model.graph.node], {output.name for output in model.graph.output}))
    read = {name for node in model.graph.node for name in node.input}
    _keep(model.graph.initializer, [tensor for tensor in model.graph.initializer if tensor.name in read])
    onnx.save(model, file)
    return len(fused)


class _Graph:
    """The nodes of a graph, by the tensors that they make and read."""

    def __init__(self, graph: Any) -> None:
        self.nodes = list(graph.node)
        self.made = {output: node for node in self.nodes for output in node.output}
        self.read: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.read.setdefault(name, []).append(node)

    def of_kind(self, kind: str) -> list[Any]:
        return [node for node in self.nodes if node.op_type == kind]

    def back(self, name: str, kinds: tuple[str, ...]) -> list[Any]:
        """The chain of nodes that makes a tensor, last node first, along first inputs; empty if the kinds differ."""
        chain = []
        for kind in kinds:
            node = self.made.get(name)
            if node is None or node.op_type != kind:
                return []
            chain.append(node)
            name = node.input[0]
        return chain

    def on(self, node: Any, kinds: tuple[str, ...]) -> list[Any]:
        """The chain of nodes that follows; empty if the kinds differ, or if another node reads a tensor in between."""
        chain = []
        for kind in kinds:
            following = self.read.get(node.output[0], [])
            if len(following) != 1 or following[0].op_type != kind:
                return []
            node = following[0]
            chain.append(node)
        return chain

    def attention(self, softmax: Any, heads: int) -> tuple[Any, Any] | None:
        """The last node of the attention around a softmax, and the one operator that replaces it; None for another shape."""
        from onnx import helper, numpy_helper  # noqa: PLC0415

        back, on = self.back(softmax.input[0], _BEFORE), self.on(softmax, _AFTER)
        if not back or not on:
            return None
        _, scaled, scores = back
        mixed, _, result = on
        factor = self.made.get(scaled.input[1])
        sources = [self.back(name, _SOURCE) for name in (*scores.input, mixed.input[1])]
        if factor is None or factor.op_type != "Constant" or not all(sources):
            return None
        fused = helper.make_node(
            "MultiHeadAttention",
            [reshape.input[0] for _, reshape in sources],
            list(result.output),
            name=f"{softmax.name}/attention",
            domain="com.microsoft",
            num_heads=heads,
            scale=float(numpy_helper.to_array(factor.attribute[0].t)),
        )
        return result, fused


def _needed(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """The nodes, in order, that the wanted tensors depend on."""
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _keep(held: Any, chosen: list[Any]) -> None:
    """Replace the content of a repeated field with some of its messages, which are copied before the field is cleared."""
    copies = [type(message).FromString(message.SerializeToString()) for message in chosen]
    del held[:]
    held.extend(copies)
