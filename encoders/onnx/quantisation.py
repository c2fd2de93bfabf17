"""Quantisation of an exported graph: int8 for one text at a time on a CPU, and int8's weights in fp32 for a GPU.

The int8 graph, which only a CPU runs, reads one text and no mask (`rewritten_graphs`), and gives the same numbers on every processor with
AVX2: its integers are exact, and so is the order of its sums.

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
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.onnx.rewritten_graphs import replace, write_single
from termweave.encoders.onnx.runtime import onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


def write_int8(fp32: Path, file: Path, *, only_mask: bool) -> None:
    """Quantise all matrices, per channel and such that no product saturates (`quantised`), and the embedding tables.

    Args:
        fp32: The graph that `write_fp32` wrote.
        file: The file to write, a graph for one text at a time (`rewritten_graphs.write_single`).
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
        length = len(quantised.raw_data)
        offset = content.find(quantised.raw_data)
        onnx.external_data_helper.set_external_data(quantised, int8.name, offset, length)
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
