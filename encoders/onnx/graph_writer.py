"""Writes a torch module as the fp32 ONNX graph; `quantisation` makes the other graphs of it.

The graph reads ``input_ids`` and ``attention_mask``, int64 ``(batch, length)``, and where the model has features
``features``, float32 ``(batch, length, 2 or 3)``.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from termweave.encoders.onnx.runtime import PER_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OPSET = 20  # the latest that the legacy exporter writes
#: Architectures whose attention adds nothing but the padding mask to its scores.
_PLAIN_ATTENTION = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"})


def write_fp32(model: Any, file: Path, outputs: Sequence[str], *, pairs: bool = False) -> None:
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


def adds_only_mask(model: Any) -> bool:
    """Whether the attention of the backbone adds nothing but the padding mask to its scores."""
    return model.backbone.config.model_type in _PLAIN_ATTENTION
