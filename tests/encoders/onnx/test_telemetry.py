"""Nothing is reported: ONNX Runtime since 1.29 sends its makers what runs where, unless it is told not to before it is imported."""

import os
import subprocess
import sys

import pytest

from termweave.encoders.onnx.runtime import onnx_runtime

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
    outside = {name: value for name, value in os.environ.items() if name not in SILENCED and not name.startswith("GITHUB_")}
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", code], env=outside | home, capture_output=True, text=True, check=True)
    assert not done.stderr
    assert not [file for file in tmp_path.rglob("*") if "onnxruntime" in file.name]


def test_what_a_user_says_about_it_stands(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "true")
    onnx_runtime()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "true"
