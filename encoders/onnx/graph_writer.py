"""Writes a torch module as ONNX graphs: fp32, int8 for one text at a time on a CPU, and int8's weights in fp32 for a GPU.

The fp32 graph reads ``input_ids`` and ``attention_mask``, int64 ``(batch, length)``, and where the model has features
``features``, float32 ``(batch, length, 2 or 3)``. The int8 graph, which only a CPU runs, reads one text and no mask, and its
attention is one operator (`single_text_graph`: 10 % less time).

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
import warnings
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds import KINDS
from termweave.encoders.onnx.runtime import PER_TEXT, onnx_runtime
from termweave.encoders.onnx.single_text_graph import write_single

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

OUTPUTS = tuple(KINDS["anchored"].graph_outputs)
OPSET = 20  # the latest that the legacy exporter writes
#: Architectures whose attention adds nothing but the padding mask to its scores, so that one operator can replace it.
_PLAIN_ATTENTION = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"})


def write_fp32(model: Any, file: Path, outputs: Sequence[str] = OUTPUTS, *, pairs: bool = False) -> None:
    """Write the fp32 graph of a module; batch and length are dynamic.

    Args:
        model: The module; it reads ``features``, too, if it has a `shape` and its outputs are those of a `JointModel`.
        file: The file to write.
        outputs: Names of the module's outputs, in order.
        pairs: Whether the module reads ``token_type_ids`` as third input.
    """
    import torch  # noqa: PLC0415 - only when called

    ids = torch.arange(24).reshape(2, 12) % 5  # every vocabulary has five tokens
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if pairs:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if hasattr(model, "shape"):
        inputs["features"] = torch.rand(2, 12, 3 if model.shape.tags else 2)
    axes = {name: {0: "batch"} if name in PER_TEXT else {0: "batch", 1: "length"} for name in (*inputs, *outputs)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about tracing and deprecation; the export compares texts of many lengths with torch
        torch.onnx.export(
            model,
            tuple(inputs.values()),
            str(file),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def attention_heads(model: Any) -> int:
    """Heads of each attention of the backbone; 0 if its attention cannot become one operator."""
    config = model.backbone.config
    return int(config.num_attention_heads) if config.model_type in _PLAIN_ATTENTION else 0


def write_int8(fp32: Path, file: Path, *, heads: int) -> None:
    """Quantise all matrices and the embedding tables, per channel. Weight heads stay in fp32: 100 kB that decide all weights.

    Args:
        fp32: The graph that `write_fp32` wrote.
        file: The file to write, a graph for one text at a time (`single_text_graph`).
        heads: Heads of an attention; 0 leaves the attention as it is.
    """
    import onnx  # noqa: PLC0415

    onnx_runtime()
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    kept = [node.name for node in onnx.load(fp32, load_external_data=False).graph.node if "/heads/" in node.name]
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it recommends a pre-processing that changes nothing here
    try:
        quantize_dynamic(fp32, file, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=kept)
    finally:
        logging.root.setLevel(level)
    write_single(file, file, heads)


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
