"""Import a module when it is first used, for files that must also load where that module is slow or not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """A stand-in for a module, which is imported when one of its attributes is first read.

    A training method is one file: its declaration is read by ``termweave methods``, which must not wait seconds for torch, and its
    loss needs torch. The file therefore names torch as a lazy module.

    Example:
        >>> math = LazyModule("math")
        >>> math.sqrt(4.0)
        2.0
    """

    def __init__(self, name: str) -> None:
        """Name the module, as in an import statement."""
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
