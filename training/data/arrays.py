"""numpy and torch as methods use them: loaded at first use, because listing the methods and their help needs neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np, torch = LazyModule("numpy"), LazyModule("torch")

__all__ = ["np", "torch"]
