"""What runs a model's graphs is found by entry point, which the manifest names; it forks, and reports nothing to anybody."""

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
from termweave.encoders.onnx.runtime import OnnxModel, onnx_runtime
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


def made_for(runtime):
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


#: Where one of these is set, ONNX Runtime is silent by itself.
SILENCED = {"CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS"}


@pytest.mark.parametrize(
    "code",
    [
        "from termweave.encoders import load; load(threads=1).encode(['a cat'], kind='document')",
        "from termweave.cli.verbs import doctor; doctor._runtime()",
        "from termweave.encoders.onnx.runtime import cuda_usable; cuda_usable()",
    ],
)
def test_onnx_runtime_leaves_no_trace(code, tmp_path):
    """Since 1.29 it sends its makers what runs where, unless it is told not to before it is imported."""
    outside = {name: value for name, value in os.environ.items() if name not in SILENCED and not name.startswith("GITHUB_")}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", code], env=outside | home, capture_output=True, text=True, check=True)
    assert not done.stderr
    assert not [file for file in tmp_path.rglob("*") if "onnxruntime" in file.name]


def test_what_a_user_says_about_it_stands(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "true")
    onnx_runtime()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "true"
