"""Quantisation of an exported graph: int8 for one text at a time on a CPU, and int8's weights in fp32 for a GPU.

The int8 graph, which only a CPU runs, reads one text and no mask (`single_text_graph`), and gives the same numbers on every processor with
AVX2: its integers are exact (`saturation`), and so is the order of its sums.

Measured on MiniLM-L6 (AMD EPYC with VNNI, 2 threads, one text at a time, mean length 175, texts/s; cosine of the vector to fp32):

=====================================  ======  ===========  =============
graph                                  fp32    int8         cosine (min)
=====================================  ======  ===========  =============
legacy exporter, eager attention       45.3    **99.8**     .989
dynamo exporter                        40.7    88.3         .989
legacy, uint8 weights                  --      58.9         .989
legacy, MatMulNBits 8 bit, blocks 64   --      58.6         .999
=====================================  ======  ===========  =============
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from termweave.encoders.onnx.runtime import onnx_runtime
from termweave.encoders.onnx.saturation import quantised
from termweave.encoders.onnx.single_text_graph import write_single

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_int8(fp32: Path, file: Path, *, only_mask: bool) -> None:
    """Quantise all matrices, per channel and such that no product saturates (`saturation`), and the embedding tables.

    Args:
        fp32: The graph that `write_fp32` wrote.
        file: The file to write, a graph for one text at a time (`single_text_graph`).
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
    kept, nodes = [], []
    for weight in graph.graph.initializer:
        quantised = stored.get(f"{weight.name}_quantized")
        if quantised is None:
            kept.append(weight)
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
        kept += parts
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    nodes += graph.graph.node
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    file.write_bytes(graph.SerializeToString())


def _transposed_by_quantiser(nodes: Iterable[Any]) -> set[str]:
    """Weights that quantisation stores transposed: a Gemm that transposes its second input becomes a plain MatMul."""
    gemms = [node for node in nodes if node.op_type == "Gemm"]
    return {node.input[1] for node in gemms if any(part.name == "transB" and part.i for part in node.attribute)}
