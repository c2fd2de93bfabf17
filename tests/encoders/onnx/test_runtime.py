"""Which graph runs where and by which class, what a GPU's batches say; forks; nothing is reported to anybody; hostile graphs are refused."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from termweave import encoders, plugins
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import ModelFolder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import runtime
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel, cuda_usable, onnx_runtime, open_session
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


def test_a_model_is_run_by_what_it_names(another_package, shipped):
    def made_for(runtime):
        folder = ModelFolder(shipped.path, replace(shipped.manifest, runtime=runtime))
        return TextEncoder(folder, folder)

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


IMPORTS = ["from termweave.cli.verbs import doctor; doctor._runtime()"]
IMPORTS += ["from termweave.encoders.onnx.runtime import cuda_usable as call; call()"]


@pytest.mark.parametrize("code", IMPORTS)
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


SHIPPED = resolve("shipped")


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx", reason="making graphs needs the extra [train]")


def external(onnx, kind, location):
    """A model whose output is read from an external file, by one of the ways in which a graph can say so."""
    proto, make = onnx.TensorProto, onnx.helper
    tensor = make.make_tensor("w", proto.FLOAT, [2], b"12345678", raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = proto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    sparse = make.make_sparse_tensor(tensor, make.make_tensor("i", proto.INT64, [2], [0, 1]), [2])
    output = make.make_tensor_value_info("y", proto.FLOAT, [2])
    constant = make.make_node("Constant", [], ["y"], value=tensor)
    inner = make.make_graph([constant], "inner", [], [output])
    truth = make.make_node("Constant", [], ["c"], value=make.make_tensor("c", proto.BOOL, [], [True]))
    nodes = {
        "constant": [constant],
        "sparse constant": [make.make_node("Constant", [], ["y"], sparse_value=sparse)],
        "subgraph": [truth, make.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
    }
    graph = make.make_graph(nodes.get(kind, [make.make_node("Identity", ["w"], ["y"])]), "g", [], [output])
    if kind == "initializer":
        graph.initializer.append(tensor)
    elif kind == "sparse initializer":
        graph.sparse_initializer.append(sparse)
    opsets = [make.make_opsetid("", 17)]
    functions = [make.make_function("", "Own", [], ["y"], [constant], opsets)] if kind == "function" else []
    return make.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


@pytest.mark.parametrize("kind", ["initializer", "sparse initializer", "constant", "sparse constant", "subgraph", "function"])
def test_tensors_in_files_elsewhere_are_refused(onnx, tmp_path, kind):
    (tmp_path / "secret").write_bytes(b"SECRETSS")
    folder = tmp_path / "model"
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_" / "*").write_bytes(b"12345678")
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    file = folder / "model.onnx"
    for location in ("../secret", str(tmp_path / "secret"), "link", "up/secret", "*/_ORT_MEM_ADDR_/*", "", "..", "gone"):
        file.write_bytes(external(onnx, kind, location).SerializeToString())
        with pytest.raises(ModelError, match=r"model\.onnx cannot be run"):
            open_session(file)
    (folder / "beside").write_bytes(b"12345678")
    file.write_bytes(external(onnx, kind, "beside").SerializeToString())
    if kind in {"initializer", "constant", "subgraph"}:
        (result,) = open_session(file).run(None, {})
        assert result.tobytes() == b"12345678"


def test_operators_of_others_are_refused(onnx, tmp_path):
    (tmp_path / "beside").write_bytes(b"12345678")
    model = external(onnx, "initializer", "beside")
    model.graph.node[0].domain = "somebody.else"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"cannot be run: .*somebody\.else"):
        open_session(tmp_path / "model.onnx")


def test_a_graph_in_the_hubs_cache_finds_its_data(tmp_path):
    """There the folder holds links into another one, in which the files lie side by side."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "commit"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in (each for each in SHIPPED.iterdir() if each.is_file()):
        shutil.copy(file, blobs / f"blob-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob-of-{file.name}")
    for precision in ("dequantised", "int8"):
        assert OnnxModel(read_folder(snapshot), threads=1, precision=precision).outputs


#: Nodes from "s", the states of the tokens, to what a graph gives instead of them.
_OTHERS = {
    "one number": lambda make: [make("ReduceMean", ["s"], ["y"], keepdims=0)],
    "twice as many tokens": lambda make: [make("Concat", ["s", "s"], ["y"], axis=1)],
    "texts": lambda make: [make("Cast", ["s"], ["y"], to=8)],
    "a list": lambda make: [make("SequenceConstruct", ["s"], ["y"])],
}


@pytest.mark.parametrize("other", _OTHERS)
def test_a_graph_that_gives_something_else_is_refused(onnx, tmp_path, other):
    """A number and an empty list ended in a traceback, and another number of tokens in a wrong vector."""
    make, proto = onnx.helper, onnx.TensorProto
    states = [make.make_node("Cast", ["input_ids"], ["f"], to=proto.FLOAT), make.make_node("Unsqueeze", ["f", "axis"], ["s"])]
    describe = make.make_tensor_sequence_value_info if other == "a list" else make.make_tensor_value_info
    output = describe("y", proto.STRING if other == "texts" else proto.FLOAT, None)
    ids = make.make_tensor_value_info("input_ids", proto.INT64, ["texts", "tokens"])
    axis = make.make_tensor("axis", proto.INT64, [1], [2])
    graph = make.make_graph([*states, *_OTHERS[other](make.make_node)], "g", [ids], [output], [axis])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    opened = OnnxModel(replace(read_folder(SHIPPED, check=False), graphs={"fp32": tmp_path / "model.onnx"}), precision="fp32")
    for texts in (1, 2):
        with pytest.raises(ModelError, match=r"gives 'y' as .*, where numbers \[1, 4\] should be"):
            opened.start([GraphInput(np.array([2, 5, 7, 3]))] * texts, ["y"])()


def nested(depth):
    """Graphs within attributes of nodes of graphs, each of a few bytes: as deep as wanted."""
    data = b""
    for number in [6, 5, 1] * depth + [7]:  # attribute.g, node.attribute, graph.node, model.graph
        size, length = len(data), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        data = bytes([number << 3 | 2]) + length + bytes([size]) + data
    return data


def test_what_is_no_graph_is_refused_soon(tmp_path):
    file = tmp_path / "model.onnx"
    for content in (nested(5_000), b"\x08\x01" * 20_000_000, b"", b"no graph", b"\x3a\xff\xff\xff\xff\x0f"):
        file.write_bytes(content)
        started = time.process_time()
        with pytest.raises(ModelError, match="cannot be run"):
            open_session(file)
        assert time.process_time() - started < 30
