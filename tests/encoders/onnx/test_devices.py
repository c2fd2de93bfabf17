"""Which graph runs where, and that a GPU's batches say what a CPU's single texts say."""

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.encoders import load
from termweave.encoders.layouts import read_folder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.runtime import PADDING, TOKEN_BUDGET, GraphInput, OnnxModel, batches, cuda_usable

TEXTS = ["a", "The cat sat on the mat.", "Photosynthesis happens in the chloroplasts of plant cells. " * 9, "", "word " * 400]


def vectors(encoder):
    return np.stack([each.vector for each in encoder.encode([text or "none" for text in TEXTS], kind="document")])


@pytest.fixture
def shipped():
    return read_folder(resolve("shipped"))


def test_without_a_gpu_the_int8_graph_runs(shipped):
    if cuda_usable():
        pytest.skip("there is a GPU")
    assert OnnxModel(shipped)._graph == shipped.graph("int8")


def test_a_gpu_gets_the_graph_that_computes_in_fp32(shipped):
    """On a machine with a GPU this runs on it."""
    if not cuda_usable():
        pytest.skip("no GPU")
    model = OnnxModel(shipped)
    assert model.on_gpu
    assert model._graph == shipped.graph("dequantised")
    assert np.abs(vectors(load()) - vectors(load(precision="dequantised"))).max() < 1e-3


def test_a_gpu_whose_libraries_are_missing_leaves_the_work_to_the_cpu(shipped, monkeypatch, capfd):
    if cuda_usable() or "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("there is a GPU, or an ONNX Runtime that knows none")
    monkeypatch.setattr(runtime, "cuda_usable", lambda: True)
    model = OnnxModel(shipped)
    assert not model.on_gpu
    assert model._graph == shipped.graph("int8")
    assert "rror" not in capfd.readouterr().err


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


def test_its_vectors_are_those_of_the_index_made_elsewhere():
    """An index written on a GPU is searched from a laptop: the same neighbourhood."""
    here, there = vectors(load(precision="int8")), vectors(load(precision="dequantised"))
    assert (here * there).sum(axis=1).min() > 0.97
