"""Which graph runs where, and that a GPU's batches say what a CPU's single texts say."""

import threading
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.base import _GPU_BLOCK
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.runtime import PADDING, TOKEN_BUDGET, GraphInput, OnnxModel, batches, cuda_usable
from termweave.errors import ModelError

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


def test_batches_say_what_single_texts_say(shipped):
    """What a GPU does, done on a CPU."""
    model = OnnxModel(shipped, precision="dequantised")
    rng = np.random.default_rng(5)
    pieces = [rng.integers(1000, 20_000, length) for length in (3, 8, 9, 40, 41, 200)]
    inputs = [GraphInput(each, rng.uniform(0, 1, (len(each), 2)).astype(np.float32)) for each in pieces]
    alone = model.start(inputs, ("document", "dense"))()
    model.on_gpu = True
    together = model.start(inputs, ("document", "dense"))()
    for one, other in zip(alone, together, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_allclose(part, same, atol=1e-5)


@given(st.lists(st.integers(2, 512), max_size=300))
def test_batches_are_nearly_full(lengths):
    found = list(batches(lengths))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        sizes = [lengths[index] for index in batch]
        assert sum(sizes) >= (1 - PADDING) * len(sizes) * max(sizes)
        assert len(sizes) * max(sizes) <= TOKEN_BUDGET


def test_texts_of_all_lengths_come_back_in_their_order(shipped, as_on_gpu):
    """More texts than one block holds: a GPU gets them sorted by length."""
    texts = [f"the {'very ' * (number * 37 % 90)}long text {number}" for number in range(2 * _GPU_BLOCK + 3)]
    encoder = load("fast", "fast")
    encoder.encode(["opens it"], kind="document")
    assert encoder._dense.graph.on_gpu
    found = encoder.encode(texts, kind="document")
    assert [each.text for each in found] == texts
    some = [0, 1, _GPU_BLOCK, len(texts) - 1]
    alone = load("fast", "fast", precision="dequantised")
    alone._dense.graph.on_gpu = False
    for one, other in zip((found[place] for place in some), alone.encode([texts[p] for p in some], kind="document"), strict=True):
        np.testing.assert_allclose(one.vector, other.vector, atol=1e-5)
        np.testing.assert_allclose(one.weights.weights, other.weights.weights, atol=1e-4)


def test_the_next_texts_are_prepared_while_one_batch_runs(shipped, as_on_gpu, monkeypatch):
    """The graph waits for the tokeniser's second call: in turns it would wait for ever."""
    model = OnnxModel(shipped)
    prepared, compute = threading.Event(), model._compute
    waiting = lambda *arguments: (prepared.wait(20) or pytest.fail("in turns"), compute(*arguments))[1]  # noqa: E731
    monkeypatch.setattr(model, "_compute", waiting)
    finish = model.start([ROW, ROW], ["dense"])
    prepared.set()  # the second block
    assert [len(result) for result in finish()] == [1, 1]


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


def test_a_graph_that_fails_on_one_text_is_one_sentence(shipped, as_on_gpu, monkeypatch):
    model = OnnxModel(shipped)
    broken = SimpleNamespace(run=lambda *_: (_ for _ in ()).throw(RuntimeError("CUDA failure 2: out of memory")))
    monkeypatch.setattr(model, "_session", broken)
    with pytest.raises(ModelError, match="failed on 1 texts of 9 tokens: CUDA failure 2: out of memory"):
        model.start([ROW, ROW, ROW], ["dense"])()


class Driver:
    """What NVIDIA's driver says: no machine at hand has one."""

    def __init__(self, *, count=1, status=0, version=13000):
        self.count, self.version = count, version
        self.cuInit = lambda _: status

    def cuDeviceGetCount(self, count):  # noqa: N802 - NVIDIA's name
        count.value = self.count
        return 0

    def cuDriverGetVersion(self, version):  # noqa: N802 - NVIDIA's name
        version.value = self.version
        return 0


@pytest.mark.parametrize(
    ("provider", "driver", "says"),
    [
        ("CPU", {}, "This ONNX Runtime cannot use a GPU: pip install onnxruntime-gpu."),
        ("CUDA", None, "There is no NVIDIA driver: install it, or use a machine with a GPU."),
        ("CUDA", {"count": 0}, "The NVIDIA driver finds no GPU: use a machine with one."),
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
