"""Which graph runs where and by which class, what a GPU's batches say; forks; nothing is reported to anybody."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave import encoders, plugins
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import ModelFolder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.runtime import PADDING, TOKEN_BUDGET, GraphInput, OnnxModel, batches, cuda_usable, onnx_runtime
from termweave.encoders.text_encoder import TextEncoder
from termweave.errors import ModelError, UsageError

TEXTS = ["a", "The cat sat on the mat.", "Photosynthesis happens in the chloroplasts of plant cells. " * 9, "", "word " * 400]


ROW = GraphInput(np.arange(1000, 1009), np.zeros((9, 2), np.float32))


def vectors(encoder):
    return np.stack([each.vector for each in encoder.encode([text or "none" for text in TEXTS], kind="document")])


@pytest.fixture
def shipped():
    return read_folder(resolve("shipped"))


def test_without_a_gpu_the_int8_graph_runs(shipped):
    if cuda_usable():
        pytest.skip("there is a GPU")
    assert OnnxModel(shipped)._graph == shipped.graph("int8")
    # An index that is written on a GPU is searched from here: the same neighbourhood.
    assert (vectors(load()) * vectors(load(precision="dequantised"))).sum(axis=1).min() > 0.97


@pytest.mark.gpu
def test_a_gpu_gets_the_graph_that_computes_in_fp32(shipped):
    """On a machine with a GPU this runs on it."""
    if not cuda_usable():
        pytest.skip("no GPU")
    assert OnnxModel(shipped)._graph == shipped.graph("dequantised")
    assert np.abs(vectors(load()) - vectors(load(precision="dequantised"))).max() < 1e-3


def test_a_gpu_whose_libraries_are_missing_leaves_the_work_to_the_cpu(shipped, monkeypatch, capfd):
    if cuda_usable() or "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("there is a GPU, or an ONNX Runtime that knows none")
    monkeypatch.setattr(runtime, "cuda_usable", lambda: True)
    model = OnnxModel(shipped)
    assert not model.on_gpu
    assert model._graph == shipped.graph("int8")
    assert "rror" not in capfd.readouterr().err


@pytest.fixture
def as_on_gpu(monkeypatch):
    """What is done for a GPU, done on the CPU: its batches, its pooling and its order of texts."""
    monkeypatch.setattr(runtime, "cuda_usable", lambda: True)
    monkeypatch.setattr(runtime, "CUDA", runtime.CPU)


@given(st.lists(st.integers(2, 512), max_size=300))
def test_batches_are_nearly_full(lengths):
    found = list(batches(lengths))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        sizes = [lengths[index] for index in batch]
        assert sum(sizes) >= (1 - PADDING) * len(sizes) * max(sizes)
        assert len(sizes) * max(sizes) <= TOKEN_BUDGET


def test_texts_of_all_lengths_come_back_in_their_order(as_on_gpu, monkeypatch):
    """More texts than one block holds: a GPU gets them sorted by length."""
    monkeypatch.setattr("termweave.encoders.kinds.base._GPU_BLOCK", 8)
    texts = [f"the {'very ' * (number * 37 % 90)}long text {number}" for number in range(19)]
    encoder, alone = load("fast", "fast"), load("fast", "fast", precision="dequantised")
    for opened, on_gpu in ((encoder, True), (alone, False)):
        opened.encode(["opens it"], kind="document")
        opened._dense.graph.on_gpu = on_gpu
    found = encoder.encode(texts, kind="document")
    assert [each.text for each in found] == texts
    for one, other in zip(found, alone.encode(texts, kind="document"), strict=True):
        np.testing.assert_allclose(one.vector, other.vector, atol=1e-5)
        np.testing.assert_allclose(one.weights.weights, other.weights.weights, atol=1e-4)


def test_a_batch_that_does_not_fit_into_memory_is_halved(shipped, as_on_gpu, monkeypatch):
    model = OnnxModel(shipped)
    rows = [GraphInput(np.arange(1000, 1009 + number // 4), np.zeros((9 + number // 4, 2), np.float32)) for number in range(11)]
    whole, session, sizes = model.start(rows, ["dense"])(), model._session, []

    def run(names, feed, *options):
        sizes.append(len(feed["input_ids"]))
        if sizes[-1] > 3:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 1048576")
        return session.run(names, feed, *options)

    monkeypatch.setattr(model, "_session", SimpleNamespace(run=run))
    for one, other in zip(model.start(rows, ["dense"])(), whole, strict=True):
        np.testing.assert_allclose(one[0], other[0], atol=1e-5)
    assert max(sizes) > 3
    assert sum(size for size in sizes if size <= 3) == len(rows)
    broken = SimpleNamespace(run=lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA failure 2: out of memory")))
    monkeypatch.setattr(model, "_session", broken)
    with pytest.raises(ModelError, match="failed on 1 texts of 9 tokens: CUDA failure 2: out of memory"):
        model.start([ROW, ROW, ROW], ["dense"])()


class Driver:
    """What NVIDIA's driver says: no machine at hand has one."""

    def __init__(self, *, count=1, status=0, version=13000):
        self.cuInit = lambda _: status
        self.cuDeviceGetCount = lambda answer: setattr(answer, "value", count)
        self.cuDriverGetVersion = lambda answer: setattr(answer, "value", version)


@pytest.mark.parametrize(
    ("provider", "driver", "says"),
    [
        ("CPU", {}, "This ONNX Runtime cannot use a GPU: pip install onnxruntime-gpu."),
        ("CUDA", None, "There is no NVIDIA driver: install it, or use a machine with a GPU."),
        ("CUDA", {"status": 100}, "The NVIDIA driver finds no GPU: use a machine with one."),
        ("CUDA", {"version": 12040}, "too old: it knows CUDA 12.4, and ONNX Runtime needs CUDA 13. Update the driver."),
        ("CUDA", {"version": 13000}, ""),
    ],
)
def test_why_there_is_no_gpu_is_one_sentence(monkeypatch, provider, driver, says):
    def library(_):
        if driver is None:
            raise OSError
        return Driver(**driver)

    installed = SimpleNamespace(get_available_providers=lambda: [f"{provider}ExecutionProvider"], cuda_version="13.0")
    monkeypatch.setattr(runtime, "onnx_runtime", lambda: installed)
    monkeypatch.setattr(runtime, "CDLL", library)
    monkeypatch.setattr(runtime, "byref", lambda value: value)
    problem = runtime.cuda_problem.__wrapped__()
    assert problem.endswith(says)
    assert bool(problem) == bool(says)


class Counting(OnnxModel):
    """Runs as ours does, and counts."""

    texts = 0

    def start(self, inputs, outputs):
        Counting.texts += len(inputs)
        return super().start(inputs, outputs)


@pytest.fixture
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


def test_a_model_is_run_by_what_it_names(another_package):
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
        "from termweave.cli.verbs import doctor; doctor._runtime()",
        "from termweave.encoders.onnx.runtime import cuda_usable as call; call()",
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
