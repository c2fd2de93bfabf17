"""A method that another package brings (`tests/outside`, an example of CONTRIBUTING.md) trains like termweave's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from termweave import plugins
from tests.training.conftest import train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = pytest.mark.usefixtures("own_cache")

OUTSIDE = Path(__file__).parents[2] / "outside"
SETTINGS = ("max_length=64", "training_length=64", "batch=12", "layers_rate=0.002", "dev=8", "every=8", "steps=16")


@pytest.fixture
def installed(monkeypatch):
    """The package is installed for one test."""
    cached = (plugins.installed, plugins.names, plugins.modules, plugins.load)
    monkeypatch.syspath_prepend(OUTSIDE)
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


@pytest.mark.usefixtures("installed")
def test_its_loss_falls_and_the_model_is_written(folder, base, tmp_path):
    written = train(folder, base, tmp_path / "out", method="margin", settings=SETTINGS)
    assert written["history"]["losses"][-1] < written["history"]["losses"][1]
    assert (tmp_path / "out" / "model.onnx").exists()
