"""A graph for one text at a time: nothing is padding, so there is no mask, and attention is one operator.

    softmax(scale * q k^T + mask) v     Transpose, MatMul, Mul, Add, Softmax, MatMul, Transpose, Reshape
        ->  com.microsoft.MultiHeadAttention(q, k, v)

ONNX Runtime has a blocked attention for the CPU, which keeps the ``(heads, n, n)`` scores in the cache, and takes it where
nothing is masked; the graph that torch's exporter writes moves them through memory five times. The runtime gives a CPU one
text at a time anyway (`encoders.runtime`). An attention that does not look like this stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MASK = "attention_mask"
#: What torch's exporter makes of transformers' eager attention, from the softmax backwards and onwards.
_BEFORE, _AFTER, _SOURCE = ("Add", "Mul", "MatMul"), ("MatMul", "Transpose", "Reshape"), ("Transpose", "Reshape")


def write_single(graph_file: Path, file: Path, heads: int) -> int:
    """Write a graph anew, for texts of one length.

    Args:
        graph_file: A graph that `encoders.export` wrote, quantised or not.
        file: To be written, may be the same: the same outputs, without the input ``attention_mask``.
        heads: Of an attention.

    Returns:
        How many attentions became one operator.
    """
    import onnx  # noqa: PLC0415 - only when called

    model = onnx.load(graph_file)
    graph = _Graph(model.graph)
    fused = [attention for softmax in graph.of("Softmax") if (attention := graph.attention(softmax, heads)) is not None]
    for output, attention in fused:
        output.CopyFrom(attention)
    if fused:
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1])
    ones = [
        onnx.helper.make_node("Shape", ["input_ids"], [f"{MASK}/shape"]),
        onnx.helper.make_node("ConstantOfShape", [f"{MASK}/shape"], [MASK], value=one),
    ]
    _keep(model.graph.input, [each for each in model.graph.input if each.name != MASK])
    _keep(model.graph.node, _needed([*ones, *model.graph.node], {each.name for each in model.graph.output}))
    read = {name for node in model.graph.node for name in node.input}
    _keep(model.graph.initializer, [each for each in model.graph.initializer if each.name in read])
    onnx.save(model, file)
    return len(fused)


class _Graph:
    """Who makes a tensor, who reads it."""

    def __init__(self, graph: Any) -> None:
        self.nodes = list(graph.node)
        self.made = {output: node for node in self.nodes for output in node.output}
        self.read: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.read.setdefault(name, []).append(node)

    def of(self, kind: str) -> list[Any]:
        return [node for node in self.nodes if node.op_type == kind]

    def back(self, name: str, kinds: tuple[str, ...]) -> list[Any]:
        """The nodes that make a tensor, last first, along first inputs; none where they are of other kinds."""
        found = []
        for kind in kinds:
            node = self.made.get(name)
            if node is None or node.op_type != kind:
                return []
            found.append(node)
            name = node.input[0]
        return found

    def on(self, node: Any, kinds: tuple[str, ...]) -> list[Any]:
        """The nodes that follow; none where they are of other kinds, or somebody else reads between them."""
        found = []
        for kind in kinds:
            following = self.read.get(node.output[0], [])
            if len(following) != 1 or following[0].op_type != kind:
                return []
            node = following[0]
            found.append(node)
        return found

    def attention(self, softmax: Any, heads: int) -> tuple[Any, Any] | None:
        """The last node of the attention around a softmax, and the one that can stand in its place."""
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
    """Of nodes in order, those on whom the wanted tensors depend."""
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _keep(held: Any, chosen: list[Any]) -> None:
    """Replace the content of a repeated field; its messages are copied before they go."""
    copies = [type(each).FromString(each.SerializeToString()) for each in chosen]
    del held[:]
    held.extend(copies)
