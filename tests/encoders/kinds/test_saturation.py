"""int8 graphs give the same integers on every processor: proved from their weights, computed, and under an emulator."""

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.onnx import export, quantisation
from termweave.encoders.onnx.quantisation import MOST, pair_sums, quantised, saturating
from termweave.encoders.onnx.runtime import open_session
from termweave.errors import ModelError
from tests.programs import program

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(path.parent for folder in ("encoders/shipped", "models") for path in (ROOT / folder).rglob("model.int8.onnx"))
#: Encodes texts with the shipped model and prints all outputs of its graph.
ENCODE = """
import json, sys
import numpy as np
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel
folder = read_folder(resolve("shipped"))
model = kind_of(folder.manifest)(folder)
texts = json.loads(sys.argv[1])
inputs = [GraphInput(each.ids, np.full((len(each.ids), 2), 0.3, np.float32)) for each in model.tokenizer.encode(texts, 256)]
graph = OnnxModel(folder, threads=1)
print(json.dumps([np.concatenate([part.ravel() for part in outputs]).tolist() for outputs in graph.start(inputs, model.graph_outputs)()]))
"""
TEXTS = (
    "clean a dirty kettle",
    "Rinse the kettle with vinegar once a month to remove limescale.",
    "Photosynthesis happens in the chloroplasts of plant cells. " * 6,
)


def matrices(graph):
    """The constant right sides of the integer products of a graph."""
    content = onnx.load(graph).graph
    stored = {tensor.name: tensor for tensor in content.initializer}
    return [onnx.numpy_helper.to_array(stored[node.input[1]]) for node in content.node if node.op_type == "MatMulInteger"]


def product(weights, folder):
    """A graph that multiplies uint8 rows with one matrix."""
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "weights"], ["sums"])],
        "product",
        [helper.make_tensor_value_info("rows", kinds.UINT8, [None, len(weights)])],
        [helper.make_tensor_value_info("sums", kinds.INT32, [None, weights.shape[1]])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "product.onnx")
    return open_session(folder / "product.onnx")


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_no_weights_of_a_shipped_graph_can_saturate(folder, tmp_path):
    """Proved from the weights alone, with a loop that has nothing in common with `pair_sums`; and this processor's sums are numpy's."""
    every, random = matrices(folder / "model.int8.onnx"), np.random.default_rng(1)
    assert len(every) >= 6 * 4
    for weights in every[::5]:
        rows = np.vstack([np.full((1, len(weights)), 255), random.integers(0, 256, (5, len(weights)))]).astype(np.uint8)
        (sums,) = product(weights, tmp_path).run(None, {"rows": rows})
        assert np.array_equal(sums, rows.astype(np.int64) @ weights.astype(np.int64))
    for weights in every:
        assert weights.dtype == np.int8
        rows = weights.astype(int)
        for first, second in zip(rows[::2], [*rows[1::2], *([0 * rows[0]] if len(rows) % 2 else [])], strict=True):
            same = np.sign(first) * np.sign(second) >= 0
            assert np.abs(first + second)[same].max(initial=0) <= 128
    assert saturating(folder / "model.int8.onnx") == []
    assert read_folder(folder).manifest.quantisation["saturates"] is False


@pytest.mark.programs
def test_processors_without_vnni_give_the_same_numbers():
    """Haswell's kernels add two products in 16 bits: with 8 bits that saturate the difference is .25."""
    if platform.machine() != "x86_64":
        pytest.skip("this machine's programs are not for x86-64, which the emulator runs")
    # The libraries' threads only wait for each other under an emulator.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    outputs = []
    for before in ([], [program("qemu-x86_64", "qemu-x86_64-static"), "-cpu", "Haswell"]):
        command = [*before, sys.executable, "-c", ENCODE, json.dumps(TEXTS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        outputs.append([np.array(row) for row in json.loads(done.stdout)])
    for here, there in zip(*outputs, strict=True):
        assert np.abs(here - there).max() < 1e-6


FLOATS = st.floats(-1e3, 1e3, width=32).map(lambda value: value if abs(value) > 1e-30 else 0.0)


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=FLOATS))
def test_columns_are_quantised_as_finely_as_saturation_permits(weights):
    whole, scales = quantised(weights)
    assert pair_sums(whole).max() <= MOST
    assert np.abs(whole.astype(int)).max() <= 127
    assert np.abs(whole * scales - weights).max() <= scales.max() * 0.5001
    for column, scale in zip(weights.T.astype(float), scales, strict=True):  # a scale that is smaller by 1 % breaks a bound
        finer = column / (0.99 * scale)
        assert not column.any() or pair_sums(finer[:, None])[0] > MOST or np.abs(finer).max() > 127


def test_an_export_that_could_saturate_is_refused(made, tmp_path, monkeypatch):
    """As if the quantiser had gone back to ONNX Runtime's 8 bits."""
    eight_bits = lambda weights: ((127 * weights / np.abs(weights).max(0)).astype(np.int8), weights[0])  # noqa: E731
    monkeypatch.setattr(quantisation, "quantised", eight_bits)
    with pytest.raises(ModelError, match="would give other numbers on other processors"):
        export.export(made()[0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_older_folder_opens_and_is_named(termweave, tmp_path, monkeypatch):
    """8 bits as they were quantised before: the folder opens as ever, and `models` and `doctor` say what it does."""
    folder = shutil.copytree(SHIPPED[0], tmp_path / "models" / "older")
    write_manifest(folder, replace(read_folder(folder).manifest, name="older", quantisation={"method": "dynamic int8"}))
    monkeypatch.setattr("termweave.support.paths.models", lambda: tmp_path / "models")
    assert load(folder).encode(["a text"], kind="document")[0].weights
    rows = {each["name"]: each["saturates"] for each in json.loads(termweave("models", "--json"))["models"]}
    assert (rows["older"], rows["fast"]) == (True, False)
    findings = {each["name"]: each["advice"] for each in json.loads(termweave("doctor", "--json"))["findings"]}
    assert findings["Your models"].startswith("older: The int8 graph gives other numbers on processors without VNNI")


def test_operators_of_which_nothing_is_proved_are_named(tmp_path):
    weights = np.array([[127, 1], [2, -128]], np.int8)
    product(weights, tmp_path)
    assert len(saturating(tmp_path / "product.onnx")) == 1
    product(np.array([[127, 1], [1, -128]], np.int8), tmp_path)
    assert saturating(tmp_path / "product.onnx") == []
