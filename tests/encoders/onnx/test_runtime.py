"""What runs a model's graphs is found by entry point: the model's manifest names it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from termweave import encoders, plugins
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import ModelFolder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx.runtime import OnnxModel
from termweave.encoders.text_encoder import TextEncoder
from termweave.errors import UsageError


class Counting(OnnxModel):
    """Runs as ours does, and counts."""

    texts = 0

    def start(self, inputs, outputs):
        Counting.texts += len(inputs)
        return super().start(inputs, outputs)


@pytest.fixture(autouse=True)
def another_package(monkeypatch):
    plugins.load.cache_clear()
    points = EntryPoints([EntryPoint("counting", f"{__name__}:Counting", "termweave.encoders")])
    monkeypatch.setattr(plugins, "installed", lambda: points)
    yield
    plugins.load.cache_clear()


def made_for(runtime: str) -> TextEncoder:
    folder = read_folder(resolve("shipped"))
    folder = ModelFolder(folder.path, replace(folder.manifest, runtime=runtime))
    return TextEncoder(folder, folder)


def test_a_model_is_run_by_what_it_names():
    (found,) = made_for("counting").encode(["json functions"], kind="query")
    assert Counting.texts == 1
    with pytest.raises(UsageError, match="no encoder named 'other'"):
        made_for("other").encode(["json"], kind="query")
    assert np.linalg.norm(found.vector) == pytest.approx(1, abs=1e-6)
    assert set(found.weights.terms) <= set(encoders.load().analyse(["json functions"])[0])


_FORKS = """
import os, signal
from termweave.encoders import load
encoder = load(threads=2)
texts = ["a cat", "a dog", "a fish"]
vectors = [each.vector.tobytes() for each in encoder.encode(texts, kind="document")]
if not (child := os.fork()):
    signal.alarm(60)
    os._exit([each.vector.tobytes() for each in encoder.encode(texts, kind="document")] != vectors)
raise SystemExit(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_encodes_as_its_parent_does():
    subprocess.run([sys.executable, "-c", _FORKS], env={**os.environ, "TOKENIZERS_PARALLELISM": "false"}, check=True)
