"""Examples in docstrings say what comes out."""

from __future__ import annotations

import doctest
import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"].values()
WITH_EXAMPLES = [
    ".".join(("termweave", *path.relative_to(ROOT).with_suffix("").parts)).replace("termweave.termweave", "termweave")
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_hold(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted or name == "termweave.engine.pytest_plugin"  # its example is a test of somebody else
    assert not found.failed
