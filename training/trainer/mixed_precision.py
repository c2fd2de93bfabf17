"""The numbers that a backbone computes with in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def backbone_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Make the context in which a backbone is run: bf16 where it is set, or with "auto" where the device has it.

    Only the backbone computes in bf16. Losses stay in float32: scores near 30 are an eighth apart in bf16.

    Args:
        device: Where it is run.
        precision: "auto", "fp32" or "bf16".
    """
    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    context: AbstractContextManager[Any] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=precision == "bf16" or (precision == "auto" and able)
    )
    return context
