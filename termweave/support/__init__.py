"""Helpers that know nothing of search. This file: import modules, and the public names of packages (PEP 562), when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class LazyModule:
    """A stand-in for a module, which is imported when one of its attributes is first read.

    A training method is one file: its declaration is read by ``termweave train --help``, which must not wait seconds for torch, and its
    loss needs torch. The file therefore names torch as a lazy module.

    Example:
        >>> math = LazyModule("math")
        >>> math.sqrt(4.0)
        2.0
    """

    def __init__(self, name: str) -> None:
        """Store the module's name, written as in an import statement."""
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package whose public names are imported when they are first used.

    Args:
        package: Name of the package.
        homes: Public name -> its module in the package; a public module has its own name.
    """

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return getattr_, lambda: list(homes)
