"""The graphs of a model, each with the proof that it computes what torch computes.

The fp32 graph may differ from torch by at most `TOLERANCE`, and a kind may demand a smallest cosine between int8 and fp32 vectors
(`OpenModel.least_cosine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.manifest import GRAPHS, ModelFolder
from termweave.encoders.onnx.graph_writer import adds_only_mask, write_fp32
from termweave.encoders.onnx.parity import Parity, largest_difference
from termweave.encoders.onnx.quantisation import write_dequantised, write_int8
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel, Outputs, Precision
from termweave.encoders.onnx.saturation import saturating
from termweave.errors import ModelError
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from termweave.encoders.kinds.base import OpenModel

#: Largest difference to torch, over all outputs, with which a graph is still written.
TOLERANCE = 1e-4


def write_checked(model: OpenModel, scratch: Path, *, fp32_only: bool = False) -> Parity:
    """Write graphs of a model into a folder and compare each with torch.

    Args:
        model: The model.
        scratch: The folder to write into.
        fp32_only: Write the fp32 graph alone, not all of `GRAPHS`.

    Raises:
        ModelError: The model cannot be exported, or a graph computes something else than torch.
    """
    module = model.load_torch()
    sample, name = model.parity_sample(), model.manifest.name
    try:
        write_fp32(module, scratch / GRAPHS["fp32"], model.graph_outputs, pairs=model.pairing == "pair")
    except Exception as error:  # torch raises a dozen classes for what it cannot trace
        raise ModelError(
            f"torch cannot write {name!r} as an ONNX graph: {first_line(error)}.",
            "Export it with optimum, and put the graph into the model's folder as onnx/model.onnx.",
        ) from error
    expected = run_torch(module, sample)
    if not all(np.isfinite(output).all() for outputs in expected for output in outputs):
        raise ModelError(
            f"The model {name!r} gives values that are not numbers (NaN or infinity).",
            "It diverged in training, or the file is damaged: copy it again, or name another model.",
        )
    difference = largest_difference(expected, _run(model, scratch, "fp32", sample))
    if not difference <= TOLERANCE:  # NaN fails, too
        raise ModelError(
            f"The ONNX graph of {name!r} differs from torch by {difference:.2g}, more than {TOLERANCE:.2g}; nothing was written.",
            "Report it with the versions of torch and onnxruntime.",
        )
    if fp32_only:
        return Parity(len(sample), difference)
    write_int8(scratch / GRAPHS["fp32"], scratch / GRAPHS["int8"], only_mask=adds_only_mask(module))
    if operators := saturating(scratch / GRAPHS["int8"]):
        raise ModelError(
            f"The int8 graph of {name!r} would give other numbers on other processors, because of {operators[0]}; nothing was written.",
            "Use the model's folder as it is: `--dense DIR` runs it in fp32. Report it with the model's architecture.",
        )
    write_dequantised(*(scratch / GRAPHS[precision] for precision in ("fp32", "int8", "dequantised")))
    int8, dequantised = (
        model.compare(expected, _run(model, scratch, precision, sample)) for precision in ("int8", "dequantised")
    )
    if not int8.get("cosine_min", 1.0) >= model.least_cosine:
        raise ModelError(
            f"The int8 graph of {name!r} gives other vectors than fp32 (smallest cosine {int8['cosine_min']:.3f}, "
            f"at least {model.least_cosine} is needed); nothing was written.",
            "Use the model's folder as it is: `--dense DIR` runs it in fp32.",
        )
    return Parity(
        texts=len(sample),
        fp32_difference=difference,
        **{f"int8_{name}": value for name, value in int8.items()},
        dequantised_cosine_min=dequantised.get("cosine_min"),
    )


def run_torch(module: Any, sample: Sequence[GraphInput]) -> Outputs:
    """Run the module on each text alone."""
    import torch  # noqa: PLC0415

    results = []
    with torch.no_grad():
        for text in sample:
            row = torch.from_numpy(text.ids)[None]
            extra = [torch.from_numpy(values)[None] for values in (text.types, text.features) if values is not None]
            outputs = module(row, torch.ones_like(row), *extra)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            results.append([np.asarray(output[0].numpy()) for output in outputs])
    return results


def _run(model: OpenModel, scratch: Path, precision: Precision, sample: Sequence[GraphInput]) -> Outputs:
    """Run one of the written graphs on the sample."""
    alone = ModelFolder(scratch, model.manifest, {precision: scratch / GRAPHS[precision]})
    return OnnxModel(alone, precision=precision).start(sample, model.graph_outputs)()
