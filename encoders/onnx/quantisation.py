"""Quantisation of an exported graph: int8 for one text at a time on a CPU, and int8's weights in fp32 for a GPU.

The int8 graph, which only a CPU runs, gives the same numbers on every processor with AVX2: its integers are exact, and so is the order of its sums.

Measured on MiniLM-L6 (AMD EPYC with VNNI, 2 threads, one text at a time, mean length 175, texts/s; cosine of the vector to fp32):

=====================================  ======  ===========  =============
graph                                  fp32    int8         cosine (min)
=====================================  ======  ===========  =============
legacy exporter, eager attention       45.3    **99.8**     .989
dynamo exporter                        40.7    88.3         .989
legacy, uint8 weights                  --      58.9         .989
legacy, MatMulNBits 8 bit, blocks 64   --      58.6         .999
=====================================  ======  ===========  =============

Processors without VNNI (AMD before 2022, Intel before Ice Lake) multiply unsigned activations by signed weights with VPMADDUBSW. It
adds the two products of neighbouring rows of the weights in 16 bits, and where the sum does not fit it saturates: 255 * 127 + 255 * 127 =
64,770 becomes 32,767. So the weights here are quantised such that it always fits: of two weights that the kernel adds first, the
positive parts add to 128 at most, and so do the negative ones; 255 * 128 = 32,640.

That costs less than 7-bit weights, where each weight is at most 64: only the scale of a column with two large neighbours grows.
Measured over 360 texts, vectors of MiniLM-L6's int8 graph against its fp32 graph, mean cosine (smallest):

=============================  ==============  ==============
weights                        with VNNI       without
=============================  ==============  ==============
8 bits                         .9952 (.9901)   .9930 (.9752)
**8 bits that never saturate** .9949 (.9884)   .9949 (.9884)
7 bits (``reduce_range``)      .9939 (.9893)   .9939 (.9893)
=============================  ==============  ==============

The int8 graph reads one text and no mask (`write_single`). For one text the graph is fast and gives the same numbers on every processor with
AVX2. Without padding there is no mask to add, and the scale of the scores moves to the queries, which are smaller. The softmax is written out,
because ONNX Runtime adds up its exponentials in another order with AVX-512 than without; nothing else in an int8 graph differs between
the two, but a last bit can round an activation to another integer, and later layers make more of it:

    softmax(scale * q k^T + mask) v     MatMul, Mul, Add, Softmax, MatMul
        ->  s = (scale * q) k^T,  e = exp(s - max s),  (e v) / sum e

Measured on 180 texts of 170 pieces (MiniLM-L6, one thread, Intel with VNNI): the same bits with and without AVX-512 for all texts, where
the one operator ``MultiHeadAttention`` gave other numbers for 92 % of them (a logit by up to .19), at 1.07 times its speed.
The runtime gives a CPU one text at a time anyway (`encoders.onnx.runtime`). A softmax of any other shape stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.onnx.runtime import onnx_runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

MASK = "attention_mask"
#: The initializer that names the last axis.
_LAST = "last_axis"


def write_int8(fp32: Path, file: Path, *, only_mask: bool) -> None:
    """Quantise all matrices, per channel and such that no product saturates (`quantised`), and the embedding tables.

    Args:
        fp32: The graph that `write_fp32` wrote.
        file: The file to write, a graph for one text at a time (`write_single`).
        only_mask: Whether the attention adds nothing but the padding mask to its scores.
    """
    import onnx  # noqa: PLC0415

    onnx_runtime()
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it recommends a pre-processing that changes nothing here
    try:
        quantize_dynamic(fp32, file, op_types_to_quantize=["MatMul", "Gather"], per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logging.root.setLevel(level)
    model, original = onnx.load(file), onnx.load(fp32).graph
    weights = {tensor.name: tensor for tensor in original.initializer}
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    turned = _transposed_by_quantiser(original.node)
    for name in {node.input[1].removesuffix("_quantized") for node in model.graph.node if node.op_type == "MatMulInteger"}:
        values = onnx.numpy_helper.to_array(weights[name])
        for part, array in zip(("quantized", "scale"), quantised(values.T if name in turned else values), strict=True):
            stored[f"{name}_{part}"].CopyFrom(onnx.numpy_helper.from_array(array, f"{name}_{part}"))
    onnx.save(model, file)
    write_single(file, file, only_mask=only_mask)


def write_dequantised(fp32: Path, int8: Path, file: Path) -> None:
    """Write a graph that computes in fp32 with the weights of the int8 graph, for GPUs, which have no kernels for dynamic int8.

    The weights are not stored twice: the graph points into the int8 file beside it (ONNX external data) and converts them with
    ``DequantizeLinear``, so that it adds 2 % to what is shipped and not 90 MB.

    Args:
        fp32: The graph that `write_fp32` wrote.
        int8: The graph that `write_int8` made of it; it must lie beside `file`.
        file: The file to write.
    """
    import onnx  # noqa: PLC0415

    graph = onnx.load(fp32)
    content = int8.read_bytes()
    stored = {tensor.name: tensor for tensor in onnx.load(int8).graph.initializer}
    turned = _transposed_by_quantiser(graph.graph.node)
    tensors, nodes = [], []
    for weight in graph.graph.initializer:
        quantised = stored.get(f"{weight.name}_quantized")
        if quantised is None:
            tensors.append(weight)
            continue
        parts = [stored[f"{weight.name}{part}"] for part in ("_quantized", "_scale", "_zero_point")]
        # Per channel means per column (`quantize_dynamic`); a table of embeddings has one scale.
        axis = {"axis": len(quantised.dims) - 1} if parts[1].dims else {}
        converted = f"{weight.name}/transposed" if weight.name in turned else weight.name
        nodes.append(onnx.helper.make_node("DequantizeLinear", [part.name for part in parts], [converted], **axis))
        if converted != weight.name:
            nodes.append(onnx.helper.make_node("Transpose", [converted], [weight.name], perm=[1, 0]))
        data = quantised.raw_data
        onnx.external_data_helper.set_external_data(quantised, int8.name, content.find(data), len(data))
        quantised.ClearField("raw_data")
        tensors += parts
    replace(graph.graph.initializer, tensors)
    replace(graph.graph.node, [*nodes, *graph.graph.node])
    file.write_bytes(graph.SerializeToString())


def _transposed_by_quantiser(nodes: Iterable[Any]) -> set[str]:
    """Names of the weights that quantisation stores transposed: a Gemm that transposes its second input becomes a plain MatMul."""
    gemms = [node for node in nodes if node.op_type == "Gemm"]
    return {node.input[1] for node in gemms if any(part.name == "transB" and part.i for part in node.attribute)}


#: The most to which two weights of one sign that a kernel adds first may add: 255 * 128 fits into 16 bits, 255 * 129 does not.
MOST = 128
#: Operators on int8. Only of the first one `saturating` can prove something.
_OPERATORS = {"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "QAttention"}
_OPERATORS |= {"DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}


def pair_sums(weights: NDArray[np.floating | np.integer]) -> NDArray[np.float64]:
    """For each column, the largest absolute sum of weights of one sign over the row pairs that a kernel adds first (0 and 1, 2 and 3, ...).

    Args:
        weights: ``(..., k, n)``; a matrix product sums over k.

    Returns:
        ``(..., n)``, for each column.

    Example:
        >>> pair_sums(np.array([[100, -3], [27, 120], [-90, 60]])).tolist()
        [127.0, 120.0]
    """
    values = weights.astype(np.float64)
    if values.shape[-2] % 2:
        values = np.concatenate((values, np.zeros_like(values[..., :1, :])), axis=-2)
    first, second = values[..., ::2, :], values[..., 1::2, :]
    positive, negative = (np.maximum(sign * first, 0) + np.maximum(sign * second, 0) for sign in (1, -1))
    largest: NDArray[np.float64] = np.maximum(positive, negative).max(axis=-2, initial=0)
    return largest


def quantised(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise each column with the smallest scale with which no product saturates.

    Args:
        weights: ``(k, n)``, finite.

    Returns:
        int8 ``(k, n)`` between -127 and 127, and the scale of each column, ``(n,)``.
    """
    scales = np.maximum(np.abs(weights).max(axis=0, initial=0).astype(np.float64) / 127, pair_sums(weights) / MOST)
    scales[scales == 0] = 1
    # Rounded up, so that the quotients stay within the bounds; two halves, rounded to even, then add to 128 at most, too.
    rounded = np.nextafter(scales.astype(np.float32), np.float32(np.inf))
    return np.rint(weights / rounded.astype(np.float64)).astype(np.int8), rounded


def saturating(graph: Path) -> list[str]:
    """Names of a graph's operators whose integer results may depend on the processor, as far as the weights tell; [] if none do."""
    import onnx  # noqa: PLC0415

    content = onnx.load(graph).graph
    weights = {tensor.name: tensor for tensor in content.initializer}

    def may_saturate(node: Any) -> bool:
        tensor = weights.get(node.input[1]) if node.op_type == "MatMulInteger" else None
        if tensor is None or tensor.data_type != onnx.TensorProto.INT8:
            return node.op_type in _OPERATORS
        return bool(pair_sums(onnx.numpy_helper.to_array(tensor)).max(initial=0) > MOST)

    return [node.name for node in content.node if may_saturate(node)]


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
    make, shape = onnx.helper.make_node, f"{MASK}/shape"
    ones = [make("Shape", ["input_ids"], [shape]), make("ConstantOfShape", [shape], [MASK], value=one)]
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
